// Mechanism mig of a scenario: makes the instances that it names, by the rules of the emulated node, and puts its
// shares on them. Pure.
#ifndef METE_EMULATOR_SIMULATE_INSTANCES_H_
#define METE_EMULATOR_SIMULATE_INSTANCES_H_

#include <vector>

#include "base/status.h"
#include "emulator/engine/engine.h"
#include "emulator/simulate/placement.h"
#include "emulator/simulate/scenario.h"

namespace mete::emulator {

// By share; fills in `part`. A share whose instance finds no room is refused. Usage and NoSuch for profiles, placements
// and instances that there are none of.
StatusOr<std::vector<Placed>> PlaceInInstances(const std::vector<EngineSettings::Gpu>& node, Scenario* scenario);

// The GPU as a program on that part of it finds it when nobody else is there.
GpuParameters ParametersOf(const GpuParameters& gpu, const PartSpec& part);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_INSTANCES_H_
