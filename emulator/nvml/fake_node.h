// An engine made of plain data, for tests of what stands above the client seam. Not thread-safe.
#ifndef METE_EMULATOR_NVML_FAKE_NODE_H_
#define METE_EMULATOR_NVML_FAKE_NODE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "emulator/engine/client.h"

namespace mete::emulator {

// What every FakeClient of the process shows; change it between calls.
struct FakeNode {
  bool up = true;
  bool owner = true;    // may set the compute mode
  int connections = 0;  // made so far
  int open = 0;         // of them, alive
  std::vector<GpuInfo> gpus;
  std::vector<GpuState> states;  // one a GPU
  std::vector<ProcessInfo> processes;
  uint64_t ns_per_look = 0;       // engine time passes by this with every State call
  uint64_t busy_ns_per_look = 0;  // … and each process was busy, DRAM for it a tenth of that, for this much of it
  std::vector<AccountingRecord> accounted;
  std::vector<EventInfo> events;
  std::map<GpuSetting, uint64_t> set;  // the last value of each
  bool lost = false;                   // GPU 0 fell off the bus
  bool mig = false;                    // GPU 0 has one 3g.20gb with one compute instance that fills it
  std::map<std::string, int> unsupported;

  static FakeNode& Get();
  void Reset();    // two GPUs: an A100 with MIG, a T4 without
  void AddH100();  // a third, with GPM
};

GpuInfo FakeGpu(const char* name, const char* architecture, int major, int minor, unsigned index);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_FAKE_NODE_H_
