#include "emulator/nvml/fake_node.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "emulator/nvml/state.h"

namespace mete::emulator {

namespace {

constexpr uint32_t kProfile = 9;
constexpr uint64_t kInstanceBytes = 19968ull << 20;

class FakeClient : public Client {
 public:
  FakeClient() { ++FakeNode::Get().open; }
  ~FakeClient() override { --FakeNode::Get().open; }

  const std::vector<GpuInfo>& Gpus() const override { return gpus_; }
  const std::string& DriverVersion() const override { return version_; }
  uint32_t CudaVersion() const override { return 13000; }
  uint64_t BackingBytes() const override { return 0; }

  Result CreateContext(uint32_t, uint64_t*) override { return Result::kRefused; }
  Result DestroyContext(uint64_t) override { return Result::kNoSuchObject; }
  Result FailContext(uint64_t, uint32_t) override { return Result::kNoSuchObject; }
  Result ReserveMemory(uint64_t, uint64_t) override { return Result::kNoSuchObject; }
  Result ReturnMemory(uint64_t, uint64_t) override { return Result::kNoSuchObject; }
  Result MemoryInfo(uint32_t, uint64_t*, uint64_t*) override { return Result::kNoSuchObject; }
  bool TakeBacking(uint64_t) override { return false; }
  void GiveBacking(uint64_t) override {}
  void CountUnsupportedCall(const char* symbol) override { ++FakeNode::Get().unsupported[symbol]; }
  Result OpenStream(uint64_t, uint32_t*) override { return Result::kNoSuchObject; }
  Result CloseStream(uint32_t) override { return Result::kNoSuchObject; }
  uint64_t Submit(uint32_t, const Work&) override { return 0; }
  bool Done(uint32_t, uint64_t) const override { return false; }
  Result Wait(uint32_t, uint64_t) override { return Result::kNoSuchObject; }
  uint64_t MarkerTime(uint32_t, uint64_t) const override { return 0; }
  Result ContextState(uint64_t, uint32_t*) const override { return Result::kNoSuchObject; }
  uint64_t EngineTime(uint32_t) const override { return 0; }

  Result State(uint32_t gpu, GpuState* state) override {
    FakeNode& node = FakeNode::Get();
    if (!node.up) return Result::kLost;
    if (gpu >= node.states.size()) return Result::kNoSuchObject;
    if (gpu == 0 && node.lost) return Result::kDeviceLost;
    node.states[gpu].engine_time_ns += node.ns_per_look;
    for (ProcessInfo& process : node.processes) {
      process.busy_ns += node.busy_ns_per_look;
      process.memory_busy_ns += node.busy_ns_per_look / 10;
    }
    *state = node.states[gpu];
    return Result::kOk;
  }
  Result Processes(uint32_t gpu, std::vector<ProcessInfo>* processes) override {
    FakeNode& node = FakeNode::Get();
    if (!node.up) return Result::kLost;
    for (const ProcessInfo& process : node.processes) {
      if (process.gpu == gpu) processes->push_back(process);
    }
    return Result::kOk;
  }
  Result SetComputeMode(uint32_t gpu, uint32_t mode) override {
    FakeNode& node = FakeNode::Get();
    if (!node.up) return Result::kLost;
    if (!node.owner) return Result::kRefused;
    node.states[gpu].compute_mode = mode;
    return Result::kOk;
  }
  Result Set(uint32_t, GpuSetting setting, uint64_t value) override {
    FakeNode& node = FakeNode::Get();
    if (!node.up) return Result::kLost;
    if (!node.owner) return Result::kNotOwner;
    node.set[setting] = value;
    return Result::kOk;
  }
  Result Accounting(uint32_t, std::vector<AccountingRecord>* records) override {
    *records = FakeNode::Get().accounted;
    return FakeNode::Get().up ? Result::kOk : Result::kLost;
  }
  Result MigProfiles(uint32_t gpu, std::vector<MigProfileInfo>* profiles) override {
    if (!FakeNode::Get().up) return Result::kLost;
    if (gpus_[gpu].mig_capable == 0) return Result::kOk;
    MigProfileInfo& profile = profiles->emplace_back();
    snprintf(profile.name, sizeof(profile.name), "3g.20gb");
    profile.id = kProfile;
    profile.nvml_profile = 2;
    profile.compute_slices = 3;
    profile.memory_slices = 4;
    profile.memory_bytes = kInstanceBytes;
    profile.start_count = 2;
    profile.starts[1] = 4;
    profile.compute_count = 1;
    profile.compute[0] = {"3g.20gb", 0, 3, 42, 1, 1, {0}};
    return Result::kOk;
  }
  Result Mig(uint32_t gpu, MigState* state) override {
    *state = {};
    if (!FakeNode::Get().up) return Result::kLost;
    if (gpu == 0 && FakeNode::Get().lost) return Result::kDeviceLost;
    state->capable = gpus_[gpu].mig_capable;
    if (state->capable == 0) return Result::kOk;
    state->max_gpu_instances = state->compute_slices = 7;
    state->memory_slices = 8;
    if (!FakeNode::Get().mig) return Result::kOk;
    state->mode = state->pending = 1;
    state->gpu_instances = state->compute_instances = 1;
    state->gpu_instance[0] = {1, 1, kProfile, 0, 4, 0, kInstanceBytes, 0};
    state->compute_instance[0] = {2, 1, 0, 0, 0, 3, 42, 0, {}};
    return Result::kOk;
  }
  Result MigRoom(uint32_t gpu, uint32_t, uint32_t profile_id, uint32_t* count) override {
    if (gpus_[gpu].mig_capable == 0) return Result::kNotSupported;
    *count = 1;
    return profile_id == kProfile || profile_id == 0 ? Result::kOk : Result::kInvalid;
  }
  Result SetMigMode(uint32_t gpu, bool, Result* activation) override {
    *activation = Result::kOk;
    return gpus_[gpu].mig_capable != 0 ? Result::kOk : Result::kNotSupported;
  }
  Result CreateGpuInstance(uint32_t, uint32_t profile_id, uint32_t, MigGpuInstance* made) override {
    *made = {3, 2, profile_id, 4, 4, 0, kInstanceBytes, 0};
    return Result::kOk;
  }
  Result CreateComputeInstance(uint32_t, uint32_t, uint32_t, uint32_t, MigComputeInstance* made) override {
    *made = {4, 1, 1, 0, 0, 3, 42, 0, {}};
    return Result::kOk;
  }
  Result DestroyGpuInstance(uint32_t, uint32_t) override { return Result::kOk; }
  Result DestroyComputeInstance(uint32_t, uint32_t, uint32_t) override { return Result::kOk; }
  Result Events(uint64_t after, std::vector<EventInfo>* events) override {
    if (!FakeNode::Get().up) return Result::kLost;
    for (const EventInfo& event : FakeNode::Get().events) {
      if (event.number > after) events->push_back(event);
    }
    return Result::kOk;
  }
  uint64_t EventCount() const override { return FakeNode::Get().events.size(); }
  void AwaitEvent(uint64_t, uint64_t timeout_ns) const override {
    const timespec pause = {0, static_cast<long>(std::min<uint64_t>(timeout_ns, 1'000'000))};
    nanosleep(&pause, nullptr);
  }

 private:
  std::vector<GpuInfo> gpus_ = FakeNode::Get().gpus;
  std::string version_ = "580.65.06";
};

}  // namespace

FakeNode& FakeNode::Get() {
  static FakeNode node;
  return node;
}

GpuInfo FakeGpu(const char* name, const char* architecture, int major, int minor, unsigned index) {
  GpuInfo info = {};
  snprintf(info.name, sizeof(info.name), "%s", name);
  snprintf(info.architecture, sizeof(info.architecture), "%s", architecture);
  snprintf(info.pci_bus_id, sizeof(info.pci_bus_id), "00000000:%02X:00.0", 7 + index);
  for (unsigned i = 0; i < sizeof(info.uuid); ++i) info.uuid[i] = static_cast<uint8_t>(16 * index + i);
  info.minor = index;
  info.compute_major = static_cast<uint32_t>(major);
  info.compute_minor = static_cast<uint32_t>(minor);
  info.sm_count = 108;
  info.clock_khz = 1'410'000;
  info.memory_clock_khz = 1'215'000;
  info.memory_bus_bits = 5120;
  info.pcie_gen = 4;
  info.pcie_lanes = 16;
  info.max_power_mw = 400'000;
  info.min_power_mw = 100'000;
  info.idle_clock_khz = 210'000;
  info.hbm = 1;
  info.slowdown_c = 92;
  info.shutdown_c = 95;
  info.bar1_bytes = 64ull << 30;
  snprintf(info.board, sizeof(info.board), "board-%u", index);
  snprintf(info.vbios, sizeof(info.vbios), "92.00.19.00.01");
  snprintf(info.part_number, sizeof(info.part_number), "900-2G183-0000-001");
  info.memory_bytes = 40960ull << 20;
  info.reserved_bytes = 512ull << 20;
  return info;
}

void FakeNode::Reset() {
  int still_open = open;
  *this = FakeNode();
  open = still_open;
  gpus = {FakeGpu("NVIDIA A100-SXM4-40GB", "ampere", 8, 0, 0), FakeGpu("Tesla T4", "turing", 7, 5, 1)};
  gpus[0].mig_capable = 1;
  gpus[0].pci_device_id = 0x20B010DE;
  gpus[0].nvlinks = 12;
  gpus[0].nvlink_generation = 3;
  gpus[1].hbm = 0;
  gpus[1].idle_memory_clock_khz = 405'000;
  gpus[1].memory_bytes = 15360ull << 20;
  gpus[1].reserved_bytes = 256ull << 20;
  gpus[1].max_power_mw = 70'000;
  states.resize(2);
  for (GpuState& state : states) {
    state.power_mw = 55'000;
    state.temperature_c = 33;
    state.sm_clock_khz = 1'410'000;
    state.memory_clock_khz = 1'215'000;
    state.application_sm_khz = 1'410'000;
    state.application_memory_khz = 1'215'000;
    state.persistence_mode = state.ecc_mode = state.ecc_pending = 1;
  }
  states[0].power_limit_mw = 400'000;
  states[1].power_limit_mw = 70'000;
}

void FakeNode::AddH100() {
  gpus.push_back(FakeGpu("NVIDIA H100 80GB HBM3", "hopper", 9, 0, 2));
  gpus.back().nvlinks = 18;
  gpus.back().nvlink_generation = 4;
  states.push_back(states[0]);
}

std::string NodeRootOf(const void*) { return ""; }  // a fake node has no folder

bool ConnectToNode(std::unique_ptr<Client>* client, std::string* why) {
  if (!FakeNode::Get().up) {
    *why = "the fake node is down";
    return false;
  }
  ++FakeNode::Get().connections;
  *client = std::make_unique<FakeClient>();
  return true;
}

}  // namespace mete::emulator
