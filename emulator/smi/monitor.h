// `nvidia-smi dmon` and `nvidia-smi pmon`: a line a GPU, or a process, again and again. Pure functions.
#ifndef METE_EMULATOR_SMI_MONITOR_H_
#define METE_EMULATOR_SMI_MONITOR_H_

#include <string>
#include <string_view>
#include <vector>

#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

// The letters that -s takes, each a group of columns.
inline constexpr std::string_view kDeviceMetrics = "pucvmet", kProcessMetrics = "um";

// `when`: what -o puts in front, "" for nothing, else D, T or both with the time as text.
std::string DeviceHeader(std::string_view metrics, std::string_view when);
std::string DeviceLines(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view metrics,
                        const std::string& time);
std::string ProcessHeader(std::string_view metrics, std::string_view when);
std::string ProcessLines(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view metrics,
                         const std::string& time);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_MONITOR_H_
