// An engine in the test's own process, behind the Client interface: counts memory, gives every work item a duration in
// a virtual time, and can be held so that nothing completes until the test lets it. For tests only. Any thread; one
// mutex.
#ifndef METE_EMULATOR_CUDA_FAKE_CLIENT_H_
#define METE_EMULATOR_CUDA_FAKE_CLIENT_H_

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulator/engine/client.h"
#include "emulator/engine/export_lock.h"
#include "emulator/engine/physical.h"

namespace mete::emulator::cuda {

class FakeClient : public Client {
 public:
  struct Posted {
    uint32_t stream;
    Work work;
  };

  explicit FakeClient(int gpus = 2) {
    for (int i = 0; i < gpus; ++i) {
      GpuInfo g{};
      snprintf(g.name, sizeof g.name, "NVIDIA Fake %d", i);
      for (int b = 0; b < 16; ++b) g.uuid[b] = static_cast<uint8_t>(i * 16 + b);
      snprintf(g.pci_bus_id, sizeof g.pci_bus_id, "00000000:%02X:00.0", 7 + i);
      g.minor = static_cast<uint32_t>(i);
      g.compute_major = 8;
      g.sm_count = 108;
      g.threads_per_sm = 2048;
      g.blocks_per_sm = 32;
      g.registers_per_sm = 65536;
      g.shared_bytes_per_sm = 167936;
      g.shared_bytes_per_block_optin = 166912;
      g.clock_khz = 1410000;
      g.memory_bytes = 1ull << 30;
      g.l2_bytes = 40ull << 20;
      g.memory_bytes_per_s = 1555000000000ull;
      g.context_bytes = 64ull << 20;
      gpus_.push_back(g);
      used_.push_back(0);
      most_.push_back(g.memory_bytes);
    }
  }

  const std::vector<GpuInfo>& Gpus() const override { return gpus_; }
  const std::string& DriverVersion() const override { return version_; }
  uint32_t CudaVersion() const override { return 13000; }
  uint64_t BackingBytes() const override { return backing_; }

  Result CreateContext(uint32_t gpu, uint64_t* context) override {
    std::lock_guard lock(mutex_);
    return states_[gpu].mode != 0 ? Result::kNoSuchObject : CreateIn(gpu, gpus_[gpu].context_bytes, context);
  }
  Result CreateMigContext(uint32_t gpu, uint32_t gpu_instance, uint32_t compute_instance, uint64_t* context) override {
    std::lock_guard lock(mutex_);
    const MigState& state = states_[gpu];
    for (uint32_t i = 0; i < state.compute_instances; ++i) {
      const MigComputeInstance& each = state.compute_instance[i];
      if (each.gpu_instance == gpu_instance && each.id == compute_instance)
        return CreateIn(places_[{gpu, gpu_instance}], gpus_[gpu].context_bytes, context);
    }
    return Result::kNoSuchObject;
  }
  Result MigProfiles(uint32_t gpu, std::vector<MigProfileInfo>* profiles) override {
    std::lock_guard lock(mutex_);
    *profiles = profiles_[gpu];
    return Result::kOk;
  }
  Result Mig(uint32_t gpu, MigState* state) override {
    std::lock_guard lock(mutex_);
    *state = states_[gpu];
    return Result::kOk;
  }
  Result MigMemoryInfo(uint32_t gpu, uint32_t gpu_instance, uint64_t* free_bytes, uint64_t* total_bytes) override {
    std::lock_guard lock(mutex_);
    const auto found = places_.find({gpu, gpu_instance});
    if (found == places_.end()) return Result::kNoSuchObject;
    *total_bytes = most_[found->second];
    *free_bytes = *total_bytes - used_[found->second];
    return Result::kOk;
  }
  Result DestroyContext(uint64_t context) override {
    std::lock_guard lock(mutex_);
    auto it = contexts_.find(context);
    if (it == contexts_.end()) return Result::kNoSuchObject;
    used_[it->second.gpu] -= it->second.bytes;
    it->second.bytes = 0;
    it->second.alive = false;
    changed_.notify_all();
    return Result::kOk;
  }
  Result FailContext(uint64_t context, uint32_t xid) override {
    std::lock_guard lock(mutex_);
    contexts_[context].xid = xid;
    changed_.notify_all();
    return Result::kOk;
  }
  Result ReserveMemory(uint64_t context, uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    if (lost_) return Result::kLost;
    ContextRecord& c = contexts_[context];
    if (c.xid != 0) return Result::kContextDead;
    if (used_[c.gpu] + bytes > most_[c.gpu]) return Result::kOutOfMemory;
    used_[c.gpu] += bytes;
    c.bytes += bytes;
    return Result::kOk;
  }
  Result ReturnMemory(uint64_t context, uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    ContextRecord& c = contexts_[context];
    if (bytes > c.bytes) {
      ++overdrawn;
      return Result::kNoSuchObject;
    }
    used_[c.gpu] -= bytes;
    c.bytes -= bytes;
    return Result::kOk;
  }
  Result MakePhysical(uint64_t context, uint64_t bytes, uint64_t* name) override {
    const Result result = ReserveMemory(context, bytes);
    return result == Result::kOk ? SharePhysical(context, bytes, name) : result;
  }
  Result SharePhysical(uint64_t context, uint64_t bytes, uint64_t* name) override {
    std::lock_guard lock(mutex_);
    ContextRecord& c = contexts_[context];
    c.bytes -= bytes;
    *name = physical_.Make(c.gpu, bytes, kThisProcess, 0);
    return Result::kOk;
  }
  // A name that is not known is another process's, which counts it.
  Result HoldPhysical(uint64_t name) override {
    std::lock_guard lock(mutex_);
    Sweep();
    if (!physical_.Hold(name, kThisProcess)) ++holds_elsewhere_[name];
    return Result::kOk;
  }
  Result DropPhysical(uint64_t name) override {
    std::lock_guard lock(mutex_);
    if (const auto change = physical_.Drop(name, kThisProcess)) {
      if (change->gone) used_[change->gpu] -= change->bytes;
    } else if (holds_elsewhere_[name] == 0) {
      ++overdrawn;
    } else {
      --holds_elsewhere_[name];
    }
    return Result::kOk;
  }
  Result ExportPhysical(uint64_t name, int descriptor) override {
    std::lock_guard lock(mutex_);
    std::shared_ptr<int> file(new int(dup(descriptor)), [](int* fd) {
      close(*fd);
      delete fd;
    });
    return physical_.Export(name, kThisProcess, [file] { return HasExported(*file); }) ? Result::kOk
                                                                                       : Result::kNoSuchObject;
  }
  Result MemoryInfo(uint32_t gpu, uint64_t* free_bytes, uint64_t* total_bytes) override {
    std::lock_guard lock(mutex_);
    *total_bytes = gpus_[gpu].memory_bytes;
    *free_bytes = *total_bytes - used_[gpu];
    return Result::kOk;
  }
  bool TakeBacking(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    if (backing_taken_ + bytes > backing_) return false;
    backing_taken_ += bytes;
    return true;
  }
  void GiveBacking(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    backing_taken_ -= bytes;
  }
  void CountUnsupportedCall(const char* symbol) override {
    std::lock_guard lock(mutex_);
    ++unsupported_[symbol];
  }

  Result OpenStream(uint64_t context, uint32_t* stream) override {
    std::lock_guard lock(mutex_);
    *stream = static_cast<uint32_t>(streams_.size());
    streams_.push_back({context, 0, 0, 0, {}});
    return Result::kOk;
  }
  Result CloseStream(uint32_t) override { return Result::kOk; }
  uint64_t Submit(uint32_t stream, const Work& work) override {
    std::lock_guard lock(mutex_);
    if (lost_) return 0;
    posted_.push_back({stream, work});
    StreamRecord& s = streams_[stream];
    uint64_t& clock = s.clock_ns;
    if (work.kind == WorkKind::kWaitFor) {
      clock = std::max(clock, streams_[work.wait_stream].marker_ns[work.wait_sequence - 1]);
    } else {
      clock += work.kind == WorkKind::kKernel ? 1000000 : work.bytes;
    }
    s.marker_ns.push_back(clock + 1);
    ++s.submitted;
    if (work.kind == WorkKind::kKernel && work.kernel.unbounded != 0) s.stuck = true;
    if (!held_ && !s.stuck) s.done = s.submitted;
    changed_.notify_all();
    return s.submitted;
  }
  bool Done(uint32_t stream, uint64_t sequence) const override {
    std::lock_guard lock(mutex_);
    return streams_[stream].done >= sequence;
  }
  Result Wait(uint32_t stream, uint64_t sequence) override {
    std::unique_lock lock(mutex_);
    Result result = Result::kOk;
    changed_.wait(lock, [&] {
      const StreamRecord& s = streams_[stream];
      const ContextRecord& c = contexts_[s.context];
      result = lost_ ? Result::kLost : c.xid != 0 || !c.alive ? Result::kContextDead : Result::kOk;
      return result != Result::kOk || s.done >= sequence;
    });
    return result;
  }
  uint64_t MarkerTime(uint32_t stream, uint64_t sequence) const override {
    std::lock_guard lock(mutex_);
    return streams_[stream].marker_ns[sequence - 1];
  }
  Result ContextState(uint64_t context, uint32_t* xid) const override {
    std::lock_guard lock(mutex_);
    if (lost_) return Result::kLost;
    auto it = contexts_.find(context);
    *xid = it == contexts_.end() ? 0 : it->second.xid;
    return *xid != 0 ? Result::kContextDead : Result::kOk;
  }
  uint64_t EngineTime(uint32_t) const override { return 1; }
  Result State(uint32_t, GpuState* state) override {
    *state = {};
    return Result::kOk;
  }
  Result Processes(uint32_t, std::vector<ProcessInfo>*) override { return Result::kOk; }
  Result SetComputeMode(uint32_t, uint32_t) override { return Result::kOk; }

  // What tests do with it.
  // Puts a GPU into MIG mode with the instances of `state`; each GPU instance has memory of its own.
  void Cut(uint32_t gpu, const MigState& state, const std::vector<MigProfileInfo>& profiles) {
    std::lock_guard lock(mutex_);
    gpus_[gpu].mig_capable = 1;
    states_[gpu] = state;
    profiles_[gpu] = profiles;
    for (uint32_t i = 0; i < state.gpu_instances; ++i) {
      places_[{gpu, state.gpu_instance[i].id}] = static_cast<uint32_t>(used_.size());
      used_.push_back(0);
      most_.push_back(state.gpu_instance[i].memory_bytes);
    }
  }
  void Hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
  }
  void Release() {
    std::lock_guard lock(mutex_);
    held_ = false;
    for (StreamRecord& s : streams_) {
      if (!s.stuck) s.done = s.submitted;
    }
    changed_.notify_all();
  }
  void Lose() {
    std::lock_guard lock(mutex_);
    lost_ = true;
    changed_.notify_all();
  }
  uint64_t LastContext() {
    std::lock_guard lock(mutex_);
    return next_context_;
  }
  uint64_t Used(uint32_t gpu) {
    std::lock_guard lock(mutex_);
    Sweep();
    return used_[gpu];
  }
  void SetBacking(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    backing_ = bytes;
  }
  std::vector<Posted> TakePosted() {
    std::lock_guard lock(mutex_);
    return std::exchange(posted_, {});
  }
  uint64_t BackingTaken() {
    std::lock_guard lock(mutex_);
    return backing_taken_;
  }
  int Unsupported(const std::string& symbol) {
    std::lock_guard lock(mutex_);
    return unsupported_[symbol];
  }

  int overdrawn = 0;

 private:
  struct ContextRecord {
    uint32_t gpu;  // or the place of a GPU instance in used_
    uint64_t bytes;
    uint32_t xid;
    bool alive;
  };
  struct StreamRecord {
    uint64_t context, submitted, done, clock_ns;
    std::vector<uint64_t> marker_ns;
    bool stuck = false;
  };

  Result CreateIn(uint32_t place, uint64_t bytes, uint64_t* context) {
    if (used_[place] + bytes > most_[place]) return Result::kOutOfMemory;
    used_[place] += bytes;
    *context = ++next_context_;
    contexts_[*context] = {place, bytes, 0, true};
    return Result::kOk;
  }

  static constexpr PhysicalMemory::Holder kThisProcess = 1;
  void Sweep() {
    for (const auto& change : physical_.Sweep()) used_[change.gpu] -= change.bytes;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GpuInfo> gpus_;
  std::vector<uint64_t> used_, most_;  // of each GPU, then of each GPU instance
  std::map<uint32_t, MigState> states_;
  std::map<uint32_t, std::vector<MigProfileInfo>> profiles_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> places_;  // of a GPU's GPU instance in used_
  std::map<uint64_t, ContextRecord> contexts_;
  std::vector<StreamRecord> streams_;
  std::vector<Posted> posted_;
  std::map<std::string, int> unsupported_;
  std::string version_ = "580.65.06";
  PhysicalMemory physical_;
  std::map<uint64_t, int> holds_elsewhere_;
  uint64_t next_context_ = 0, backing_ = 256ull << 20, backing_taken_ = 0;
  bool held_ = false, lost_ = false;
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_FAKE_CLIENT_H_
