// What a simulation runs: shares, their processes and work, events, and what is expected; read from a YAML file whose
// format is docs/scenarios.md.
//
// Plain values. Errors: Usage naming file, line, key and what it may be.
#ifndef METE_EMULATOR_SIMULATE_SCENARIO_H_
#define METE_EMULATOR_SIMULATE_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "emulator/engine/faults.h"
#include "emulator/simulate/reader.h"
#include "emulator/simulate/workload.h"
#include "ledger/layout.h"

namespace mete::emulator {

enum class SharingMechanism { kIntercept, kTimeSlicing, kExclusive, kMig };

// With mechanism mig: a GPU instance that is there, and its compute instances by name; none: one that fills it.
struct InstanceSpec {
  std::string name, profile;
  uint32_t gpu = 0;
  int start = -1;  // memory slice; -1: chosen as a driver does
  std::vector<std::string> compute;
};

// Where a share runs then: numbers that are the same for the same instance, and its size.
struct PartSpec {
  uint32_t instance = 0, compute = 0;
  double memory_part = 1;
  uint32_t copy_engines = 1, sms = 1;
};

enum class ArrivalKind { kClosed, kEvery, kPoisson, kTrace };
struct ArrivalSpec {
  ArrivalKind kind = ArrivalKind::kClosed;
  uint64_t think_ns = 0;         // closed
  uint64_t period_ns = 0;        // every; poisson: the mean
  std::vector<double> trace_ms;  // since the start of the share
};

struct ShareSpec {
  std::string name;
  ledger::ComputeMode mode = ledger::ComputeMode::kWorkConserving;
  uint32_t share = ledger::kFullShare;  // hundredths of a percent
  uint32_t weight = 1;
  uint32_t processes = 1;
  uint32_t depth = 8;              // launches that a process keeps in flight
  uint32_t streams = 1;            // of a process
  double kernel_ms = 0;            // 0: from the sweep
  uint64_t blocks = 0;             // 0: from the sweep
  uint64_t on_ns = 0, off_ns = 0;  // bursts; off 0: always busy
  uint64_t from_ns = 0;            // starts then
  std::string lock_step;    // not empty: after `depth` launches waits until all that name the same have ended theirs
  std::string workload;     // not empty: requests of this instead of single kernels
  std::vector<Step> steps;  // of the workload
  ArrivalSpec arrival;
  bool planned = false;  // memory, compute and gpu are for mete's plan
  std::string gpu, memory, compute;
  std::string instance;          // mechanism mig: NAME, or NAME/K for its compute instance K
  std::optional<PartSpec> part;  // what that came to
};

enum class EventKind { kSet, kKill, kStopBroker, kStartBroker, kFault };
struct EventSpec {
  EventKind kind = EventKind::kSet;
  uint64_t at_ns = 0;
  uint32_t share = 0;                // index
  uint32_t process = 0;              // kKill
  uint32_t percent = 0, weight = 0;  // kSet: hundredths of a percent, weight
  FaultSpec fault;                   // kFault; its gpu is the node's
  bool of_share = false;             // kFault: `share` is whom it befalls
  bool clear = false;                // kFault: all faults of the GPU end
};

enum class ExpectKind { kShare, kBounds, kGap, kTotal, kLatency, kRequests, kTurn, kAlive, kRefused, kRate };
struct ExpectSpec {
  ExpectKind kind = ExpectKind::kShare;
  uint32_t share = 0;  // index
  double percent = 0, points = 2;
  double at_least = 0, at_most = 100;
  uint64_t from_ns = 0, to_ns = 0;  // to 0: the end
  uint64_t gap_ns = 0;
  double value = 0,
         within = 10;  // kLatency (ms), kTurn (µs), kRate (a second): ± percent; kRequests, kAlive, kRefused: a count
};

struct Scenario {
  std::string name, purpose;
  uint64_t length_ns = 10'000'000'000;
  uint64_t seed = 1;
  Range notice = {10'000, 60'000}, broker_wake = {20'000, 120'000}, waiter_wake = {20'000, 100'000};
  uint64_t launch_ns = 5'000;
  bool gates = true;
  SharingMechanism mechanism = SharingMechanism::kIntercept;
  std::vector<std::string> boards;
  std::string more_boards;     // a folder; empty: none
  uint64_t time_slice_ns = 0;  // 0: the board's
  std::vector<double> sweep_kernel_ms = {1};
  std::vector<uint64_t> sweep_blocks = {1000};
  std::vector<uint32_t> sweep_processes;  // empty: as the share says
  std::vector<InstanceSpec> instances;
  std::vector<ShareSpec> shares;
  std::vector<EventSpec> events;
  std::vector<ExpectSpec> expect;
};

// `what` names the text in errors; files it names are sought beside it.
StatusOr<Scenario> ParseScenario(const std::string& text, std::string_view what);
StatusOr<Scenario> ReadScenario(const std::string& path);

// One combination of the sweep, put into the shares.
struct Case {
  double kernel_ms;
  uint64_t blocks;
  std::optional<uint32_t> processes;
  Scenario scenario;
};
std::vector<Case> Cases(const Scenario& scenario);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_SCENARIO_H_
