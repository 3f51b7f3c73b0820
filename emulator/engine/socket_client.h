// The client over the engine's socket and pages; private to client*.cc. See client.h for the contract.
#ifndef METE_EMULATOR_ENGINE_SOCKET_CLIENT_H_
#define METE_EMULATOR_ENGINE_SOCKET_CLIENT_H_

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/engine/client.h"
#include "emulator/engine/protocol.h"

namespace mete::emulator {

class SocketClient : public Client {
 public:
  SocketClient() = default;
  ~SocketClient() override;
  bool Open(const char* node_root, std::string* why);

  const std::vector<GpuInfo>& Gpus() const override { return gpus_; }
  const std::string& DriverVersion() const override { return driver_version_; }
  uint32_t CudaVersion() const override { return cuda_version_; }
  uint64_t BackingBytes() const override { return backing_bytes_; }

  Result CreateContext(uint32_t gpu, uint64_t* context) override;
  Result CreateMigContext(uint32_t gpu, uint32_t gpu_instance, uint32_t compute_instance, uint64_t* context) override;
  Result DestroyContext(uint64_t context) override { return Simple(MessageType::kDestroyContext, context, 0, 0); }
  Result FailContext(uint64_t context, uint32_t xid) override {
    return Simple(MessageType::kFailContext, context, 0, xid);
  }
  Result ReserveMemory(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReserveMemory, context, bytes, 0);
  }
  Result ReturnMemory(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReturnMemory, context, bytes, 0);
  }
  Result ReserveManaged(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReserveManaged, context, bytes, 0);
  }
  Result ReturnManaged(uint64_t context, uint64_t bytes) override {
    return Simple(MessageType::kReturnManaged, context, bytes, 0);
  }
  Result SetLimits(uint32_t gpu, const std::string& group, uint64_t soft, uint64_t hard) override;
  Result GetLimits(uint32_t gpu, const std::string& group, uint64_t* soft, uint64_t* hard, uint64_t* current) override;
  Result MakePhysical(uint64_t context, uint64_t bytes, uint64_t* name) override {
    return Named(MessageType::kMakePhysical, context, bytes, name);
  }
  Result SharePhysical(uint64_t context, uint64_t bytes, uint64_t* name) override {
    return Named(MessageType::kSharePhysical, context, bytes, name);
  }
  Result HoldPhysical(uint64_t name) override { return Simple(MessageType::kHoldPhysical, 0, name, 0); }
  Result DropPhysical(uint64_t name) override { return Simple(MessageType::kDropPhysical, 0, name, 0); }
  Result ExportPhysical(uint64_t name, int descriptor) override;
  Result MemoryInfo(uint32_t gpu, uint64_t* free_bytes, uint64_t* total_bytes) override;
  Result MigMemoryInfo(uint32_t gpu, uint32_t gpu_instance, uint64_t* free_bytes, uint64_t* total_bytes) override;
  void LeaveWord(uint32_t gpu, uint32_t word) override {
    if (unscrubbed_) OfGpu(MessageType::kLeaveWord, gpu, word, 0);
  }
  uint32_t FoundWord(uint32_t gpu) override;
  bool TakeBacking(uint64_t bytes) override { return Simple(MessageType::kTakeBacking, 0, bytes, 0) == Result::kOk; }
  void GiveBacking(uint64_t bytes) override { Simple(MessageType::kGiveBacking, 0, bytes, 0); }
  void CountUnsupportedCall(const char* symbol) override;

  Result OpenStream(uint64_t context, uint32_t* stream) override;
  Result CloseStream(uint32_t stream) override { return Simple(MessageType::kCloseStream, 0, 0, stream); }
  uint64_t Submit(uint32_t stream, const Work& work) override;
  bool Done(uint32_t stream, uint64_t sequence) const override;
  Result Wait(uint32_t stream, uint64_t sequence) override;
  uint64_t MarkerTime(uint32_t stream, uint64_t sequence) const override;
  Result ContextState(uint64_t context, uint32_t* xid) const override;
  uint64_t EngineTime(uint32_t) const override { return MonotonicNs(); }

  Result State(uint32_t gpu, GpuState* state) override;
  Result Processes(uint32_t gpu, std::vector<ProcessInfo>* processes) override;
  Result SetComputeMode(uint32_t gpu, uint32_t mode) override {
    return OfGpu(MessageType::kSetComputeMode, gpu, mode, 0);
  }
  Result SetTimeSliceClass(uint32_t gpu, uint32_t time_slice_class) override {
    return OfGpu(MessageType::kSetTimeSlice, gpu, time_slice_class, 0);
  }
  Result Set(uint32_t gpu, GpuSetting setting, uint64_t value) override {
    return OfGpu(MessageType::kSet, gpu, static_cast<uint32_t>(setting), value);
  }
  Result Accounting(uint32_t gpu, std::vector<AccountingRecord>* records) override {
    return List(MessageType::kAccounting, gpu, 0, records);
  }
  Result ResetGpu(uint32_t gpu) override { return OfGpu(MessageType::kResetGpu, gpu, 0, 0); }
  Result MigProfiles(uint32_t gpu, std::vector<MigProfileInfo>* profiles) override {
    return List(MessageType::kMigProfiles, gpu, 0, profiles);
  }
  Result Mig(uint32_t gpu, MigState* state) override { return One(OfMig(MessageType::kMigState, gpu, 0, 0), state); }
  Result MigRoom(uint32_t gpu, uint32_t gpu_instance, uint32_t profile_id, uint32_t* count) override;
  Result SetMigMode(uint32_t gpu, bool on, Result* activation) override;
  Result CreateGpuInstance(uint32_t gpu, uint32_t profile_id, uint32_t start, MigGpuInstance* made) override {
    return One(OfMig(MessageType::kCreateGpuInstance, gpu, 0, profile_id, start), made);
  }
  Result CreateComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t profile_id, uint32_t start,
                               MigComputeInstance* made) override {
    return One(OfMig(MessageType::kCreateComputeInstance, gpu, gpu_instance, profile_id, start), made);
  }
  Result DestroyGpuInstance(uint32_t gpu, uint32_t gpu_instance) override {
    return Plain(OfMig(MessageType::kDestroyGpuInstance, gpu, gpu_instance, 0));
  }
  Result DestroyComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t compute_instance) override {
    return Plain(OfMig(MessageType::kDestroyComputeInstance, gpu, gpu_instance, compute_instance));
  }
  uint32_t ContextError(uint64_t context) const override;
  Result Events(uint64_t after, std::vector<EventInfo>* events) override {
    return List(MessageType::kEvents, 0, after, events);
  }
  uint64_t EventCount() const override { return Ours() ? node_->events.load(std::memory_order_acquire) : 0; }
  void AwaitEvent(uint64_t seen, uint64_t timeout_ns) const override {
    if (Ours()) FutexWait(node_->events, seen, timeout_ns);
  }
  Result InjectFault(const FaultSpec& fault, uint64_t* id) override;
  Result ClearFaults(uint32_t gpu, uint64_t id) override { return OfGpu(MessageType::kClearFaults, gpu, 0, id); }
  Result Faults(std::vector<FaultInfo>* faults) override { return List(MessageType::kFaults, 0, 0, faults); }

 protected:
  // fds: places for session page, node page and doorbell, which come with the reply to kHello. sent: goes with the
  // request; -1: none. Virtual for tests, which have an engine without a socket.
  virtual Result Call(Request& request, ReplyHeader* reply, std::string* payload, int* fds = nullptr, int sent = -1);
  bool TakeHello(const ReplyHeader& reply, const std::string& payload);

 private:
  // A fork wipes the page, so that the child knows that this connection is its parent's.
  bool Ours() const { return owner_ != nullptr && *owner_ == 1; }
  bool Lost() const { return !Ours() || lost_.load(std::memory_order_relaxed); }
  // Asks the kernel whether the engine's end of the socket still stands.
  bool LookWhetherLost() const;
  Result Named(MessageType type, uint64_t context, uint64_t bytes, uint64_t* name);
  Result Simple(MessageType type, uint64_t context, uint64_t amount, uint32_t value);
  Result OfGpu(MessageType type, uint32_t gpu, uint32_t value, uint64_t amount);
  Result Plain(Request request);  // of which only the result is wanted
  template <typename T>
  Result List(MessageType type, uint32_t gpu, uint64_t amount, std::vector<T>* list);
  // The request's payload is one T.
  template <typename T>
  Result One(Request request, T* value);
  static Request OfMig(MessageType type, uint32_t gpu, uint32_t gpu_instance, uint32_t value, uint64_t amount = 0);
  void RingDoorbell() const;

  int socket_ = -1, doorbell_ = -1;
  const volatile uint8_t* owner_ = nullptr;
  SessionPage* page_ = nullptr;
  const NodePage* node_ = nullptr;
  mutable std::atomic<bool> lost_{false};
  std::mutex calls_;            // one request at a time on the socket
  std::string buffer_;          // of the reply; under calls_
  std::mutex submissions_;      // the ring has one writer
  std::vector<uint64_t> next_;  // next sequence by stream slot; under submissions_
  mutable std::mutex markers_;
  std::unordered_map<uint64_t, uint32_t> marker_slots_;  // stream and sequence → slot
  std::vector<uint64_t> marker_keys_;                    // by slot; 0: unused
  uint32_t next_marker_ = 0;

  std::vector<GpuInfo> gpus_;
  std::string driver_version_;
  uint32_t cuda_version_ = 0;
  uint64_t backing_bytes_ = 0;
  bool unscrubbed_ = false;
};

template <typename T>
Result SocketClient::List(MessageType type, uint32_t gpu, uint64_t amount, std::vector<T>* list) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.gpu = gpu;
  request.amount = amount;
  ReplyHeader reply;
  std::string payload;
  const Result result = Call(request, &reply, &payload);
  if (result != Result::kOk) return result;
  list->resize(payload.size() / sizeof(T));
  std::memcpy(static_cast<void*>(list->data()), payload.data(), list->size() * sizeof(T));
  return result;
}

template <typename T>
Result SocketClient::One(Request request, T* value) {
  ReplyHeader reply;
  std::string payload;
  const Result result = Call(request, &reply, &payload);
  if (result != Result::kOk) return result;
  if (payload.size() != sizeof(T)) return Result::kLost;
  std::memcpy(static_cast<void*>(value), payload.data(), sizeof(T));
  return result;
}

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_SOCKET_CLIENT_H_
