// An engine in one process for tests: sessions without sockets, virtual time. Not thread-safe.
#ifndef METE_EMULATOR_ENGINE_TEST_NODE_H_
#define METE_EMULATOR_ENGINE_TEST_NODE_H_

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emulator/engine/boards.h"
#include "emulator/engine/engine.h"

namespace mete::emulator {

inline constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;  // ns

class TestNode {
 public:
  static constexpr uint32_t kOwner = 7;
  static constexpr uint64_t kStartNs = 1'000'000'000;

  explicit TestNode(const std::string& gpus, const TestWithout& without = {},
                    std::shared_ptr<CgroupTree> cgroups = nullptr)
      : engine_(Settings(gpus, without, std::move(cgroups)), now_) {
    admin_ = AddProcess(1, kOwner);
  }

  struct Process {
    Engine::SessionId session = 0;
    SessionPage* page = nullptr;  // the node's: an engine looks at it until the session has ended
    uint64_t context = 0;
    uint32_t stream = 0, gpu = 0;
    ContextWord Word() const { return static_cast<ContextWord>(page->contexts[ContextSlot(context)].state.load()); }
    uint32_t Error() const { return page->contexts[ContextSlot(context)].error.load(); }
    uint32_t Xid() const { return page->contexts[ContextSlot(context)].xid.load(); }
    uint64_t Done() const { return page->streams[StreamSlot(stream)].done.load(); }
  };

  Process AddProcess(uint32_t pid, uint32_t uid) {
    Process process;
    process.page = pages_.emplace_back(NewPage()).get();
    process.session = engine_.AddSession(process.page, {pid, uid, "test"});
    return process;
  }
  // A process with a context and a stream on the GPU.
  Process AddTenant(uint32_t pid, uint32_t gpu = 0) {
    Process process = AddProcess(pid, kOwner + 1);
    process.gpu = gpu;
    Request request = Make(MessageType::kCreateContext);
    request.gpu = gpu;
    process.context = Call(process, request).a;
    request = Make(MessageType::kOpenStream);
    request.context = process.context;
    process.stream = static_cast<uint32_t>(Call(process, request).a);
    return process;
  }
  void Submit(Process& process, const Work& work) {
    const uint64_t tail = process.page->tail;
    process.page->ring[tail % kRingEntries] = {now_, process.stream, kNoMarker, work};
    process.page->tail = tail + 1;
  }
  void End(Process& process) { engine_.RemoveSession(process.session, now_); }

  static Request Make(MessageType type) {
    Request request = {};
    request.magic = kProtocolMagic;
    request.version = kProtocolVersion;
    request.type = static_cast<uint32_t>(type);
    request.bytes = sizeof(request);
    return request;
  }
  ReplyHeader Call(const Process& process, const Request& request, std::vector<uint8_t>* payload = nullptr,
                   PhysicalMemory::StillOpen exported = {}) {
    std::vector<uint8_t> reply;
    ReplyHeader header = {};
    size_t bytes = 0;
    if (engine_.Handle(process.session, &request, sizeof(request), now_, &reply, std::move(exported)) ==
        Engine::Handled::kHangUp) {
      header.result = static_cast<int32_t>(Result::kLost);
      return header;
    }
    DecodeReply(reply.data(), reply.size(), &header, &bytes);
    if (payload != nullptr) payload->assign(reply.begin() + sizeof(header), reply.end());
    return header;
  }
  Result Ask(const Process& process, MessageType type, uint32_t gpu = 0, uint32_t value = 0, uint64_t amount = 0) {
    Request request = Make(type);
    request.gpu = gpu;
    request.value = value;
    request.context = process.context;
    request.amount = amount;
    return static_cast<Result>(Call(process, request).result);
  }
  Result Inject(const FaultSpec& spec, const Process* by = nullptr, uint64_t* id = nullptr) {
    Request request = Make(MessageType::kInjectFault);
    std::memcpy(request.text, &spec, sizeof(spec));
    const ReplyHeader reply = Call(by == nullptr ? admin_ : *by, request);
    if (id != nullptr) *id = reply.a;
    return static_cast<Result>(reply.result);
  }
  Result Xid(uint32_t xid, uint32_t pid = 0, uint32_t gpu = 0) {
    FaultSpec spec;
    spec.xid = xid;
    spec.pid = pid;
    spec.gpu = gpu;
    return Inject(spec);
  }
  Result Clear(uint32_t gpu = kAllGpus, uint64_t id = 0) { return Ask(admin_, MessageType::kClearFaults, gpu, 0, id); }
  Result Reset(uint32_t gpu = 0) { return Ask(admin_, MessageType::kResetGpu, gpu); }
  // What NVML says that the process holds; 0 if it does not name it.
  uint64_t BytesOf(uint32_t pid, uint32_t gpu = 0) {
    Request request = Make(MessageType::kProcesses);
    request.gpu = gpu;
    std::vector<uint8_t> payload;
    Call(admin_, request, &payload);
    uint64_t bytes = 0;
    for (size_t at = 0; at + sizeof(ProcessInfo) <= payload.size(); at += sizeof(ProcessInfo)) {
      ProcessInfo process;
      std::memcpy(&process, payload.data() + at, sizeof(process));
      if (process.pid == pid) bytes += process.memory_bytes;
    }
    return bytes;
  }
  GpuState State(uint32_t gpu = 0) {
    Request request = Make(MessageType::kState);
    request.gpu = gpu;
    std::vector<uint8_t> payload;
    Call(admin_, request, &payload);
    GpuState state = {};
    if (payload.size() == sizeof(state)) std::memcpy(&state, payload.data(), sizeof(state));
    return state;
  }
  std::vector<uint32_t> Xids() {
    std::vector<uint8_t> payload;
    Call(admin_, Make(MessageType::kEvents), &payload);
    std::vector<uint32_t> xids;
    for (size_t at = 0; at + sizeof(EventInfo) <= payload.size(); at += sizeof(EventInfo)) {
      EventInfo event;
      std::memcpy(&event, payload.data() + at, sizeof(event));
      if (event.type == kEventXid) xids.push_back(event.xid);
    }
    return xids;
  }
  void Pass(uint64_t ns) { engine_.AdvanceTo(now_ += ns); }

  Engine& engine() { return engine_; }
  const Process& admin() const { return admin_; }
  uint64_t now() const { return now_; }

  // A kernel that fills the GPU and takes about that long alone.
  static Work Kernel(const EngineSettings::Gpu& gpu, double ns) {
    Work work;
    work.kind = WorkKind::kKernel;
    work.kernel.threads_per_block = 256;
    work.kernel.blocks = gpu.model.sm_count * 4;
    work.kernel.warp_instructions[kFp32] = ns * 1e-9 * gpu.model.clock_hz * gpu.model.warp_throughput[kFp32] / 4;
    return work;
  }
  Work Kernel(double ns) const { return Kernel(engine_.settings().gpus[0], ns); }

 private:
  // As a session has it: zeroes that take no memory before they are written.
  struct Unmap {
    void operator()(SessionPage* page) const { munmap(page, sizeof(*page)); }
  };
  static SessionPage* NewPage() {
    void* const page = mmap(nullptr, sizeof(SessionPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? nullptr : static_cast<SessionPage*>(page);
  }

  static EngineSettings Settings(const std::string& gpus, const TestWithout& without,
                                 std::shared_ptr<CgroupTree> cgroups) {
    EngineSettings settings;
    settings.driver_version = "580.65.06";
    settings.cuda_version = 13000;
    settings.backing_bytes = 1 << 20;
    settings.owner_uid = kOwner;
    settings.without = without;
    settings.cgroups = std::move(cgroups);
    settings.gpus = GpusByName(gpus, "/test").value();
    return settings;
  }

  uint64_t now_ = kStartNs;
  std::vector<std::unique_ptr<SessionPage, Unmap>> pages_;
  Engine engine_;
  Process admin_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_TEST_NODE_H_
