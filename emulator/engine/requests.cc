// What the engine answers to each kind of request.
#include <time.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <tuple>

#include "base/json.h"
#include "emulator/engine/engine.h"
#include "emulator/engine/payload.h"

namespace mete::emulator {

namespace {

constexpr size_t kMostSymbols = 2048;                                                 // the driver API has fewer names
constexpr uint32_t kModeDefault = 0, kModeProhibited = 2, kModeExclusiveProcess = 3;  // NVML's numbers

uint64_t WallClockUs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

void Copy(const std::string& text, char* out, size_t size) {
  std::memset(out, 0, size);
  text.copy(out, size - 1);
}

// Where memory that outlives its context stays charged.
struct Charged {
  Cgroups::Id cgroup;
  uint32_t place;
  uint64_t Tag() const { return cgroup << 32 | place; }
  static Charged Of(uint64_t tag) { return {tag >> 32, static_cast<uint32_t>(tag)}; }
};

const char* NeedText(Need need) {
  return need == Need::kNone ? "nothing" : need == Need::kReset ? "reset" : "restart of the node";
}

}  // namespace

Engine::Handled Engine::Handle(SessionId id, const void* data, size_t size, uint64_t now_ns,
                               std::vector<uint8_t>* reply, PhysicalMemory::StillOpen exported) {
  Request request;
  if (Find(id) == nullptr || !DecodeRequest(data, size, &request)) return Handled::kHangUp;
  AdvanceTo(now_ns);  // what was submitted before the request counts before it
  Session& session = *Find(id);
  if (session.broken) return Handled::kHangUp;
  for (const PhysicalMemory::Change& change : physical_.Sweep()) Charge(change);

  ReplyHeader header = {kProtocolMagic, kProtocolVersion, request.type, 0, 0, 0, 0, 0};
  std::vector<uint8_t> payload;
  Result result = Result::kOk;
  Handled handled = Handled::kReply;
  const auto type = static_cast<MessageType>(request.type);
  const bool names_gpu =
      type == MessageType::kCreateContext || type == MessageType::kMemoryInfo || type == MessageType::kState ||
      type == MessageType::kProcesses || type == MessageType::kSetComputeMode || type == MessageType::kSetTimeSlice ||
      type == MessageType::kResetGpu || type == MessageType::kLeaveWord || type == MessageType::kFoundWord ||
      type == MessageType::kSet || type == MessageType::kAccounting || type == MessageType::kSetLimits ||
      type >= MessageType::kGetLimits;
  const bool owners_only = type == MessageType::kSetTimeSlice || type == MessageType::kResetGpu ||
                           type == MessageType::kInjectFault || type == MessageType::kClearFaults ||
                           type == MessageType::kSet || type == MessageType::kSetLimits ||
                           type >= MessageType::kSetMigMode;
  if (owners_only && session.peer.uid != settings_.owner_uid) {
    result = Result::kNotOwner;
  } else if (names_gpu && request.gpu >= gpus_.size()) {
    result = Result::kNoSuchObject;
  } else if (names_gpu && gpus_[request.gpu]->health.lost != 0) {
    result = Result::kDeviceLost;
  } else {
    switch (type) {
      case MessageType::kHello: {
        HelloInfo hello = {};
        Copy(settings_.driver_version, hello.driver_version, sizeof(hello.driver_version));
        hello.cuda_version = settings_.cuda_version;
        hello.backing_bytes = settings_.backing_bytes;
        hello.unscrubbed = settings_.without.scrubbing ? 1 : 0;
        Append(payload, hello);
        for (const auto& gpu : gpus_) Append(payload, gpu->info);
        header.count = static_cast<uint32_t>(gpus_.size());
        break;
      }
      case MessageType::kCreateContext: result = CreateContext(session, request.gpu, 0, &header.a, now_ns); break;
      case MessageType::kDestroyContext:
        if (ContextRecord* context = FindContext(session, request.context)) {
          FreeContext(session, *context, now_ns);
        } else {
          result = Result::kNoSuchObject;
        }
        break;
      case MessageType::kFailContext: result = FailContext(session, request.context, request.value, now_ns); break;
      case MessageType::kReserveMemory: result = Reserve(session, request.context, request.amount, false); break;
      case MessageType::kReturnMemory: result = Return(session, request.context, request.amount, false); break;
      case MessageType::kReserveManaged: result = Reserve(session, request.context, request.amount, true); break;
      case MessageType::kReturnManaged: result = Return(session, request.context, request.amount, true); break;
      case MessageType::kSetLimits:
        result = SetLimits(request.gpu, std::string(request.text, strnlen(request.text, sizeof(request.text))),
                           {request.context, request.amount});
        break;
      case MessageType::kGetLimits: {
        MemoryLimits limits;
        uint64_t current = 0;
        result = GetLimits(request.gpu, std::string(request.text, strnlen(request.text, sizeof(request.text))), &limits,
                           &current);
        header.a = limits.hard;
        header.b = limits.soft;
        Append(payload, current);
        break;
      }
      case MessageType::kMakePhysical:
        result = MakePhysical(session, request.context, request.amount, &header.a);
        break;
      case MessageType::kSharePhysical:
        result = SharePhysical(session, request.context, request.amount, &header.a);
        break;
      case MessageType::kHoldPhysical: result = Changed(physical_.Hold(request.amount, id)); break;
      case MessageType::kDropPhysical: result = Changed(physical_.Drop(request.amount, id)); break;
      case MessageType::kExportPhysical:
        if (!exported) {
          result = Result::kInvalid;
        } else if (!physical_.Export(request.amount, id, std::move(exported))) {
          result = Result::kNoSuchObject;
        }
        break;
      case MessageType::kMemoryInfo: {
        const Cgroups::Room room = cgroups_.RoomOf(CgroupOf(session), request.gpu);
        header.a = std::min(FreeBytes(request.gpu), room.left);
        header.b = std::min(gpus_[request.gpu]->info.memory_bytes, room.most);
        break;
      }
      case MessageType::kTakeBacking: result = TakeBacking(session, request.amount); break;
      case MessageType::kGiveBacking: {
        const uint64_t back = std::min(request.amount, session.backing);
        session.backing -= back;
        backing_used_ -= back;
        break;
      }
      case MessageType::kCountUnsupported: CountUnsupported(request.text, sizeof(request.text)); break;
      case MessageType::kOpenStream: {
        uint32_t stream = 0;
        result = OpenStream(session, request.context, &stream);
        header.a = stream;
        break;
      }
      case MessageType::kCloseStream: result = CloseStream(session, request.value, now_ns); break;
      case MessageType::kState: Append(payload, StateOf(request.gpu, now_ns)); break;
      case MessageType::kProcesses: header.count = AppendAll(payload, ProcessesOf(request.gpu)); break;
      case MessageType::kSetComputeMode:
        if (gpus_[request.gpu]->mig.on()) {
          result = Result::kNotSupported;
        } else if (session.peer.uid != settings_.owner_uid ||
                   (request.value != kModeDefault && request.value != kModeProhibited &&
                    request.value != kModeExclusiveProcess)) {
          result = Result::kRefused;
        } else {
          gpus_[request.gpu]->compute_mode = request.value;
        }
        break;
      case MessageType::kSet:
        result = Set(session, request.gpu, static_cast<GpuSetting>(request.value), request.amount, now_ns);
        break;
      case MessageType::kAccounting: header.count = AppendAll(payload, AccountingOf(request.gpu, now_ns)); break;
      case MessageType::kStatus: {
        const std::string text = StatusText(now_ns);
        payload.assign(text.begin(), text.end());
        break;
      }
      case MessageType::kStop:
        if (session.peer.uid == settings_.owner_uid) {
          handled = Handled::kStop;
        } else {
          result = Result::kRefused;
        }
        break;
      case MessageType::kSetTimeSlice:
        if (request.value >= std::size(settings_.gpus[0].time_slices_ns)) {
          result = Result::kRefused;
        } else {
          gpus_[request.gpu]->time_slice_class = request.value;
          ApplyTimeSlice(request.gpu);
        }
        break;
      case MessageType::kMigProfiles:
      case MessageType::kMigState:
      case MessageType::kMigRoom:
      case MessageType::kMigMemory:
      case MessageType::kCreateMigContext:
      case MessageType::kSetMigMode:
      case MessageType::kCreateGpuInstance:
      case MessageType::kCreateComputeInstance:
      case MessageType::kDestroyGpuInstance:
      case MessageType::kDestroyComputeInstance: result = HandleMig(session, request, now_ns, &header, &payload); break;
      case MessageType::kResetGpu: result = ResetGpu(request.gpu, now_ns); break;
      case MessageType::kEvents: header.count = AppendAll(payload, EventsAfter(request.amount)); break;
      case MessageType::kInjectFault: {
        FaultSpec spec;
        std::memcpy(&spec, request.text, sizeof(spec));
        result = InjectFault(spec, now_ns, &header.a, id);
        break;
      }
      case MessageType::kLeaveWord: gpus_[request.gpu]->word_left = request.value; break;
      case MessageType::kFoundWord: header.a = settings_.without.scrubbing ? gpus_[request.gpu]->word_left : 0; break;
      case MessageType::kClearFaults: result = ClearFaults(request.gpu, request.amount, now_ns); break;
      case MessageType::kFaults: {
        std::vector<FaultInfo> faults;
        for (const auto& [number, fault] : faults_) faults.push_back(fault.info);
        header.count = AppendAll(payload, faults);
        break;
      }
    }
  }
  header.result = static_cast<int32_t>(result);
  if (sizeof(header) + payload.size() > kMaxReplyBytes) payload.resize(kMaxReplyBytes - sizeof(header));
  header.bytes = static_cast<uint32_t>(sizeof(header) + payload.size());
  reply->clear();
  Append(*reply, header);
  reply->insert(reply->end(), payload.begin(), payload.end());
  return handled;
}

// --- Contexts and memory -------------------------------------------------------------------------------------------

Result Engine::CreateContext(Session& session, uint32_t index, uint32_t place, uint64_t* id, uint64_t now_ns) {
  Gpu& gpu = *gpus_[index];
  MigGpu::Compute* const compute = place == 0 ? nullptr : gpu.mig.FindPlace(place);
  if (gpu.mig.on() && compute == nullptr) return Result::kNoSuchObject;  // with MIG the GPU itself is no device
  if (gpu.compute_mode == kModeProhibited || gpu.health.need != Need::kNone) return Result::kRefused;
  if (gpu.compute_mode == kModeExclusiveProcess) {
    for (const auto& [other_id, other] : sessions_) {
      if (other->peer.pid == session.peer.pid) continue;
      for (const ContextRecord& context : other->contexts) {
        if (context.id != 0 && context.gpu == index) return Result::kRefused;
      }
    }
  }
  if (gpu.info.context_bytes > FreeBytes(index, place)) return Result::kOutOfMemory;
  const Cgroups::Id cgroup = CgroupOf(session);
  if (gpu.info.context_bytes > cgroups_.RoomOf(cgroup, index).left) return Result::kOutOfMemory;
  for (uint32_t slot = 0; slot < kMaxContexts; ++slot) {
    ContextRecord& context = session.contexts[slot];
    if (context.id != 0) continue;
    context.id = ++last_context_ << 8 | slot;
    context.gpu = index;
    context.place = place;
    context.model = gpu.model.AddContext(now_ns, compute == nullptr ? kAllSms : compute->part);
    context.memory = gpu.info.context_bytes;
    context.cgroup = cgroup;
    Charge(cgroup, index, context.memory);
    Use(index, place, static_cast<int64_t>(context.memory));
    if (compute != nullptr) ++compute->info.contexts;
    ++gpu.contexts;
    uint64_t held = 0;
    for (const auto& [other_id, other] : sessions_) {
      if (other->peer.pid == session.peer.pid) held += other->held[{index, place}].physical;
    }
    gpu.accounting.ContextBegan(session.peer.pid, now_ns, WallClockUs(), held);
    gpu.accounting.MemoryChanged(session.peer.pid, static_cast<int64_t>(context.memory));
    ContextEntry& entry = session.page->contexts[slot];
    entry.xid.store(0, std::memory_order_relaxed);
    entry.error.store(0, std::memory_order_relaxed);
    entry.state.store(static_cast<uint32_t>(ContextWord::kAlive), std::memory_order_relaxed);
    entry.id.store(context.id, std::memory_order_release);
    *id = context.id;
    return Result::kOk;
  }
  return Result::kOutOfMemory;  // of context slots
}

Result Engine::FailContext(Session& session, uint64_t id, uint32_t xid, uint64_t now_ns) {
  ContextRecord* context = FindContext(session, id);
  if (context == nullptr) return Result::kNoSuchObject;
  if (context->dead) return Result::kContextDead;
  const auto rule = BuiltInXidRules().find(xid);
  const uint32_t error = rule == BuiltInXidRules().end() ? 0 : rule->second.cuda;
  Publish(context->gpu, kEventXid, xid, session.peer.pid, now_ns);
  Kill(session, *context, xid, error, ContextWord::kDead, now_ns);
  return Result::kOk;
}

void Engine::Kill(Session& session, ContextRecord& context, uint32_t xid, uint32_t error, ContextWord word,
                  uint64_t now_ns) {
  DropModelContext(session, context, now_ns);
  context.dead = true;
  ContextEntry& entry = session.page->contexts[ContextSlot(context.id)];
  entry.xid.store(xid, std::memory_order_relaxed);
  entry.error.store(error, std::memory_order_relaxed);
  entry.state.store(static_cast<uint32_t>(word), std::memory_order_seq_cst);
  for (uint32_t slot = 0; slot < session.streams.size(); ++slot) {
    StreamRecord& stream = session.streams[slot];
    if (stream.id == 0 || stream.context != context.id) continue;
    session.outstanding -= stream.submitted - stream.done;
    stream.done = stream.submitted;
    if (!cross_waits_.empty()) {
      StreamRecord reached = {};
      reached.id = stream.id;
      reached.done = UINT64_MAX;  // nothing more comes of it
      OpenGates(session, reached, slot, now_ns);
    }
    FutexWakeAll(session.page->streams[slot].done);
  }
}

Result Engine::Reserve(Session& session, uint64_t id, uint64_t bytes, bool managed) {
  ContextRecord* context = FindContext(session, id);
  if (context == nullptr) return Result::kNoSuchObject;
  if (context->dead) return Result::kContextDead;
  Gpu& gpu = *gpus_[context->gpu];
  if (bytes > FreeBytes(context->gpu, context->place)) return Result::kOutOfMemory;
  if (managed) {
    context->managed += bytes;
  } else if (!Charge(context->cgroup, context->gpu, bytes)) {
    return Result::kOutOfMemory;
  }
  context->memory += bytes;
  Use(context->gpu, context->place, static_cast<int64_t>(bytes));
  gpu.accounting.MemoryChanged(session.peer.pid, static_cast<int64_t>(bytes));
  return Result::kOk;
}

Result Engine::Return(Session& session, uint64_t id, uint64_t bytes, bool managed) {
  ContextRecord* context = FindContext(session, id);
  if (context == nullptr) return Result::kNoSuchObject;
  Gpu& gpu = *gpus_[context->gpu];
  const uint64_t has = managed ? context->managed : context->memory - context->managed - gpu.info.context_bytes;
  if (bytes > has) return Result::kRefused;
  if (managed) {
    context->managed -= bytes;
  } else {
    Uncharge(context->cgroup, context->gpu, bytes);
  }
  context->memory -= bytes;
  Use(context->gpu, context->place, -static_cast<int64_t>(bytes));
  gpu.accounting.MemoryChanged(session.peer.pid, -static_cast<int64_t>(bytes));
  return Result::kOk;
}

Result Engine::MakePhysical(Session& session, uint64_t id, uint64_t bytes, uint64_t* name) {
  if (bytes < PhysicalMemory::kLeastBytes) return Result::kInvalid;
  if (const Result result = Reserve(session, id, bytes, false); result != Result::kOk) return result;
  return SharePhysical(session, id, bytes, name);
}

Result Engine::SharePhysical(Session& session, uint64_t id, uint64_t bytes, uint64_t* name) {
  ContextRecord* context = FindContext(session, id);
  if (context == nullptr) return Result::kNoSuchObject;
  if (bytes < PhysicalMemory::kLeastBytes ||
      bytes > context->memory - context->managed - gpus_[context->gpu]->info.context_bytes)
    return Result::kInvalid;
  context->memory -= bytes;
  session.held[{context->gpu, context->place}].physical += bytes;
  *name = physical_.Make(context->gpu, bytes, session.id, Charged{context->cgroup, context->place}.Tag());
  return Result::kOk;
}

Result Engine::Changed(const std::optional<PhysicalMemory::Change>& change) {
  if (!change) return Result::kNoSuchObject;
  Charge(*change);
  return Result::kOk;
}

void Engine::Charge(const PhysicalMemory::Change& change) {
  Gpu& gpu = *gpus_[change.gpu];
  const Charged where = Charged::Of(change.tag);
  if (change.gone) {
    Use(change.gpu, where.place, -static_cast<int64_t>(change.bytes));
    Uncharge(where.cgroup, change.gpu, change.bytes);
  }
  if (change.from == change.to) return;
  if (Session* from = Find(change.from)) {
    from->held[{change.gpu, where.place}].physical -= change.bytes;
    gpu.accounting.MemoryChanged(from->peer.pid, -static_cast<int64_t>(change.bytes));
  }
  if (Session* to = Find(change.to)) {
    to->held[{change.gpu, where.place}].physical += change.bytes;
    gpu.accounting.MemoryChanged(to->peer.pid, static_cast<int64_t>(change.bytes));
  }
}

Result Engine::TakeBacking(Session& session, uint64_t bytes) {
  if (bytes > settings_.backing_bytes - backing_used_) return Result::kOutOfMemory;
  session.backing += bytes;
  backing_used_ += bytes;
  return Result::kOk;
}

Result Engine::OpenStream(Session& session, uint64_t context_id, uint32_t* id) {
  ContextRecord* context = FindContext(session, context_id);
  if (context == nullptr) return Result::kNoSuchObject;
  if (context->dead) return Result::kContextDead;
  uint32_t slot;
  if (!session.free_streams.empty()) {
    slot = session.free_streams.back();
    session.free_streams.pop_back();
  } else if (session.streams.size() < kMaxStreams) {
    slot = static_cast<uint32_t>(session.streams.size());
    session.streams.emplace_back();
  } else {
    return Result::kOutOfMemory;
  }
  StreamRecord& stream = session.streams[slot];
  stream.generation = stream.generation % 0xffff + 1;
  stream.id = stream.generation << 16 | slot;
  stream.context = context_id;
  stream.gpu = context->gpu;
  Gpu& gpu = *gpus_[context->gpu];
  stream.model = gpu.model.AddStream(context->model);
  gpu.owners[stream.model] = {&session, slot};
  ++context->streams;
  StreamEntry& entry = session.page->streams[slot];
  entry.context_slot.store(ContextSlot(context_id), std::memory_order_relaxed);
  entry.done.store(0, std::memory_order_relaxed);
  entry.id.store(stream.id, std::memory_order_seq_cst);
  *id = stream.id;
  return Result::kOk;
}

Result Engine::CloseStream(Session& session, uint32_t id, uint64_t now_ns) {
  StreamRecord* stream = FindStream(session, id);
  if (stream == nullptr || stream->closed) return Result::kNoSuchObject;
  stream->closed = true;
  gpus_[stream->gpu]->model.RemoveStream(now_ns, stream->model);
  if (stream->done == stream->submitted) FreeStream(session, StreamSlot(id));
  return Result::kOk;
}

// --- What NVML and people ask --------------------------------------------------------------------------------------

void Engine::CountUnsupported(const char* text, size_t size) {
  const std::string symbol(text, strnlen(text, size));
  const bool name = !symbol.empty() && std::all_of(symbol.begin(), symbol.end(),
                                                   [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  if (!name) return;
  if (unsupported_.size() < kMostSymbols || unsupported_.contains(symbol)) ++unsupported_[symbol];
}

std::vector<ProcessInfo> Engine::ProcessesOf(uint32_t index) {
  std::map<std::pair<uint32_t, uint32_t>, ProcessInfo> processes;  // a process may have several connections
  for (const auto& [id, session] : sessions_) {
    std::map<uint32_t, ProcessInfo> present;  // by place
    for (const ContextRecord& context : session->contexts) {
      if (context.id == 0 || context.gpu != index) continue;
      ProcessInfo& here = present[context.place];
      here.memory_bytes += context.memory;
      if (context.dead) continue;
      here.busy_ns += gpus_[index]->model.ContextBusyNs(context.model);
      here.memory_busy_ns += gpus_[index]->model.ContextMemoryBusyNs(context.model);
    }
    for (const auto& [where, held] : session->held) {
      if (where.first != index) continue;
      // Mappable memory outlives contexts.
      if (held.physical == 0 && !present.contains(where.second)) continue;
      ProcessInfo& here = present[where.second];
      here.memory_bytes += held.physical;
      here.busy_ns += held.past_busy_ns;
      here.memory_busy_ns += held.past_memory_busy_ns;
    }
    for (const auto& [place, here] : present) {
      ProcessInfo& process = processes[{session->peer.pid, place}];
      process.pid = session->peer.pid;
      process.gpu = index;
      std::tie(process.gpu_instance, process.compute_instance) = InstancesOf(index, place);
      process.memory_bytes += here.memory_bytes;
      process.busy_ns += here.busy_ns;
      process.memory_busy_ns += here.memory_busy_ns;
      Copy(session->peer.name, process.name, sizeof(process.name));
    }
  }
  std::vector<ProcessInfo> list;
  for (const auto& [key, process] : processes) list.push_back(process);
  return list;
}

std::string Engine::StatusText(uint64_t now_ns) {
  Json gpus = Json::array();
  for (uint32_t i = 0; i < gpus_.size(); ++i) {
    const GpuState state = StateOf(i, now_ns);
    Json processes = Json::array();
    for (const ProcessInfo& process : ProcessesOf(i)) {
      processes.push_back({{"pid", process.pid},
                           {"name", process.name},
                           {"memory_bytes", process.memory_bytes},
                           {"busy_ns", process.busy_ns}});
    }
    gpus.push_back({{"index", i},
                    {"memory_used_bytes", state.memory_used_bytes},
                    {"memory_free_bytes", FreeBytes(i)},
                    {"contexts", state.contexts},
                    {"compute_mode", state.compute_mode},
                    {"lost", state.health.lost != 0},
                    {"needs", NeedText(state.health.need)},
                    {"utilization_gpu", state.utilization_gpu},
                    {"utilization_memory", state.utilization_memory},
                    {"busy_ns", state.busy_ns},
                    {"switches", gpus_[i]->model.Counters().switches},
                    {"processes", std::move(processes)}});
    if (gpus_[i]->mig.capable()) gpus.back()["mig"] = MigJson(i);
  }
  Json unsupported = Json::object();
  for (const auto& [symbol, count] : unsupported_) unsupported[symbol] = count;
  uint64_t work = 0;
  for (const auto& [id, session] : sessions_) work += session->outstanding;
  return Json{{"uptime_ns", now_ns - started_ns_},
              {"submissions", submissions_},
              {"outstanding", work},
              {"connections", sessions_.size()},
              {"backing_bytes", settings_.backing_bytes},
              {"backing_used_bytes", backing_used_},
              {"gpus", std::move(gpus)},
              {"launches",
               {{"exact", launches_.by_origin[kLabelExact]},
                {"extrapolated", launches_.by_origin[kLabelExtrapolated]},
                {"cached", launches_.by_origin[kLabelCached]},
                {"unbounded", launches_.by_origin[kLabelUnbounded]},
                {"timed_only", launches_.timed_only},
                {"undefined_reads", launches_.undefined_reads}}},
              {"unsupported_calls", std::move(unsupported)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mete::emulator
