// The engine of an emulated node: GPUs (a model each), client sessions, memory accounting, NVML's numbers. No sockets
// and no clock of its own: the server (server.h) feeds it requests, pages and the time; tests and fuzzers do the same.
//
// Every byte of a request and of a session page is a stranger's: it is copied once, checked, and can hurt only the
// session it came from. Not thread-safe. Times: ns of CLOCK_MONOTONIC; the models run on that clock.
#ifndef METE_EMULATOR_ENGINE_ENGINE_H_
#define METE_EMULATOR_ENGINE_ENGINE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "emulator/engine/accounting.h"
#include "emulator/engine/cgroups.h"
#include "emulator/engine/client.h"
#include "emulator/engine/fault_rules.h"
#include "emulator/engine/gpu_status.h"
#include "emulator/engine/launch_label.h"
#include "emulator/engine/meter.h"
#include "emulator/engine/mig.h"
#include "emulator/engine/model.h"
#include "emulator/engine/physical.h"
#include "emulator/engine/protocol.h"

namespace mete::emulator {

// Rules that tests leave out, to show that a measurement notices (the model's own stand in GpuParameters). Reached only
// by the test-only option --test-without of `mete-emulator up`.
struct TestWithout {
  bool fault_spread = false;  // a fault of the GPU hurts only one process
  bool memory_limit = false;  // nobody runs out of device memory
  bool scrubbing = false;     // freed memory keeps what it held
};

struct EngineSettings {
  std::string driver_version;
  uint32_t cuda_version = 0;
  uint64_t backing_bytes = 0;
  uint32_t owner_uid = 0;
  TestWithout without;
  std::shared_ptr<CgroupTree> cgroups;  // null: the driver knows no limits by cgroup
  struct Gpu {
    GpuInfo info;
    GpuParameters model;
    const gpu::MigBoard* mig = nullptr;                                         // null: the board has no MIG
    uint64_t time_slices_ns[4] = {2'048'000, 1'024'000, 4'096'000, 8'192'000};  // by compute-policy's class
  };
  std::vector<Gpu> gpus;
};

struct Peer {  // as the kernel tells
  uint32_t pid = 0;
  uint32_t uid = 0;
  std::string name;
};

class Engine {
 public:
  using SessionId = uint64_t;

  Engine(EngineSettings settings, uint64_t now_ns);
  ~Engine();

  const EngineSettings& settings() const { return settings_; }

  // `page` outlives the session; the engine initialises it.
  SessionId AddSession(SessionPage* page, const Peer& peer);
  // Everything the session held is back when this returns.
  void RemoveSession(SessionId session, uint64_t now_ns);

  enum class Handled { kReply, kHangUp, kStop };
  // Answers one packet. kHangUp: it was no request; the caller ends the session. kStop: reply, then end the engine.
  // `exported`: of the descriptor that came with it; empty if none did.
  Handled Handle(SessionId session, const void* data, size_t size, uint64_t now_ns, std::vector<uint8_t>* reply,
                 PhysicalMemory::StillOpen exported = {});

  // Takes what the rings hold, replays it and the models' events at their due instants up to now.
  void AdvanceTo(uint64_t now_ns);
  // True if some ring holds what has not been taken.
  bool RingsPending() const;
  // The files of cgroups follow within this time.
  static constexpr uint64_t kCgroupFilesNs = 50'000'000;
  // Earliest instant at which the engine has something to do by itself.
  std::optional<uint64_t> NextEventNs() const;
  // Events published so far.
  uint64_t EventCount() const { return event_count_; }
  uint64_t SwitchesOf(uint32_t gpu) const { return gpus_[gpu]->model.Counters().switches; }
  // Sessions to be ended since the last call: their page broke the protocol, or the driver was restarted.
  std::vector<SessionId> TakeBroken();

 private:
  struct StreamRecord {
    uint32_t id = 0;  // the client's name for it; 0: free
    uint64_t context = 0;
    uint32_t gpu = 0;
    StreamId model = 0;
    uint64_t submitted = 0, done = 0;
    bool closed = false;
    uint32_t generation = 0;
    std::deque<std::pair<uint64_t, uint32_t>> markers;  // sequence → marker slot
  };
  struct ContextRecord {
    uint64_t id = 0;  // 0: free
    uint32_t gpu = 0;
    uint32_t place = 0;  // serial of the MIG compute instance that it is on; 0: the GPU
    ContextId model = 0;
    uint64_t memory = 0;   // its own and its allocations
    uint64_t managed = 0;  // of that, managed memory, which no cgroup counts
    Cgroups::Id cgroup = 0;
    bool dead = false;
    uint32_t streams = 0;
  };
  struct Held {                                          // by a session on a GPU, or on one MIG device of it
    uint64_t past_busy_ns = 0, past_memory_busy_ns = 0;  // of contexts that are gone
    uint64_t physical = 0;                               // what it is charged with besides its contexts
  };
  struct Session {
    SessionId id = 0;
    Peer peer;
    SessionPage* page = nullptr;
    uint64_t head = 0;
    uint64_t last_submitted_ns = 0;
    uint64_t outstanding = 0;
    uint64_t backing = 0;
    bool broken = false;
    std::vector<ContextRecord> contexts;  // kMaxContexts
    std::vector<StreamRecord> streams;    // grows up to kMaxStreams
    std::vector<uint32_t> free_streams;
    std::map<std::pair<uint32_t, uint32_t>, Held> held;  // by GPU and place
  };
  struct Gpu {
    explicit Gpu(const EngineSettings::Gpu& gpu) : info(gpu.info), model(gpu.model), mig(gpu.mig, gpu.info) {}
    GpuInfo info;
    GpuModel model;
    MigGpu mig;
    uint64_t used = 0;
    uint32_t compute_mode = 0;
    uint32_t time_slice_class = 0;
    Health health = {};
    double clock = 1, memory = 1;  // factors in force
    bool hung = false;
    uint32_t word_left = 0;  // in memory that somebody freed
    uint32_t contexts = 0;
    Meter meter;
    GpuSettings settings;
    SmClock sm_clock;                              // as of the last ApplySpeed
    double applied_clock = 1, applied_memory = 1;  // factors that the model has
    Accounting accounting;
    uint64_t metered_busy_ns = 0, power_capped_ns = 0, throttled_ns = 0;
    std::unordered_map<StreamId, std::pair<Session*, uint32_t>> owners;  // model stream → session, slot
  };
  // A stream that waits for one of another GPU: `gate` is a stream of the waiting model that the engine completes.
  struct CrossWait {
    SessionId session;
    uint64_t context;  // that waits
    uint32_t slot;     // of the stream waited for
    uint32_t id;
    uint64_t sequence;
    uint32_t gpu;  // that waits
    StreamId gate;
  };
  struct Fault {
    FaultInfo info;
    uint64_t random;  // of its further instants
  };
  struct Arrival {
    uint64_t at_ns;
    Session* session;
    Submission submission;
  };

  Session* Find(SessionId id);
  ContextRecord* FindContext(Session& session, uint64_t id);
  StreamRecord* FindStream(Session& session, uint32_t id);
  void Drain(Session& session, uint64_t now_ns);
  void Accept(const Arrival& arrival);
  void AdvanceModels(uint64_t to_ns);
  void AdvanceModel(uint32_t gpu, uint64_t to_ns);
  void Completed(uint32_t gpu, const Completion& done);
  void OpenGates(Session& session, const StreamRecord& stream, uint32_t slot, uint64_t at_ns);
  void FreeStream(Session& session, uint32_t slot);
  void DropModelContext(Session& session, ContextRecord& context, uint64_t now_ns);
  void FreeContext(Session& session, ContextRecord& context, uint64_t now_ns);

  // requests.cc
  // place: as ContextRecord's.
  Result CreateContext(Session& session, uint32_t gpu, uint32_t place, uint64_t* id, uint64_t now_ns);
  Result FailContext(Session& session, uint64_t id, uint32_t xid, uint64_t now_ns);
  void Kill(Session& session, ContextRecord& context, uint32_t xid, uint32_t error, ContextWord word, uint64_t now_ns);
  Result OpenStream(Session& session, uint64_t context, uint32_t* id);
  Result CloseStream(Session& session, uint32_t id, uint64_t now_ns);
  Result Reserve(Session& session, uint64_t context, uint64_t bytes, bool managed);
  Result Return(Session& session, uint64_t context, uint64_t bytes, bool managed);
  Result MakePhysical(Session& session, uint64_t context, uint64_t bytes, uint64_t* name);
  Result SharePhysical(Session& session, uint64_t context, uint64_t bytes, uint64_t* name);
  Result Changed(const std::optional<PhysicalMemory::Change>& change);
  void Charge(const PhysicalMemory::Change& change);
  Result TakeBacking(Session& session, uint64_t bytes);
  void CountUnsupported(const char* text, size_t size);
  std::vector<ProcessInfo> ProcessesOf(uint32_t gpu);
  std::string StatusText(uint64_t now_ns);

  // mig_requests.cc
  Result HandleMig(Session& session, const Request& request, uint64_t now_ns, ReplyHeader* header,
                   std::vector<uint8_t>* payload);
  Result SetMigMode(uint32_t gpu, bool on, uint64_t now_ns);
  void SwitchMig(uint32_t gpu);  // instances end, the mode is as was asked for
  void ForgetMigMode(uint32_t gpu);
  void ApplyTimeSlice(uint32_t gpu);
  void Use(uint32_t gpu, uint32_t place, int64_t bytes);
  uint64_t FreeBytes(uint32_t gpu, uint32_t place = 0);
  std::pair<uint32_t, uint32_t> InstancesOf(uint32_t gpu, uint32_t place);  // ids of GPU and compute instance
  Json MigJson(uint32_t gpu) const;

  // limits.cc
  Cgroups::Id CgroupOf(const Session& session);
  void Uncharge(Cgroups::Id group, uint32_t gpu, uint64_t bytes);
  bool Charge(Cgroups::Id group, uint32_t gpu, uint64_t bytes);
  void ShowCgroup(Cgroups::Id group, uint32_t gpu);  // and those above it, soon
  void WriteCgroups();
  void ForgetRemovedCgroups();
  Result SetLimits(uint32_t gpu, const std::string& group, MemoryLimits limits);
  Result GetLimits(uint32_t gpu, const std::string& group, MemoryLimits* limits, uint64_t* current);

  // gpu_requests.cc
  GpuState StateOf(uint32_t gpu, uint64_t now_ns);
  void Meters(Gpu& gpu, uint64_t now_ns);
  Result Set(const Session& session, uint32_t gpu, GpuSetting setting, uint64_t value, uint64_t now_ns);
  std::vector<AccountingRecord> AccountingOf(uint32_t gpu, uint64_t now_ns) const;
  // After whatever decides about the clocks has changed: contexts, settings, faults.
  void ApplySpeed(uint32_t gpu, uint64_t now_ns);

  // fault_effects.cc
  Result InjectFault(FaultSpec spec, uint64_t now_ns, uint64_t* id, SessionId by);
  Result ClearFaults(uint32_t gpu, uint64_t id, uint64_t now_ns);
  Result ResetGpu(uint32_t gpu, uint64_t now_ns);
  uint64_t NextFaultNs() const;
  void HappenDue(uint64_t now_ns);  // in the order of their instants
  void Happen(Fault& fault, uint64_t now_ns, SessionId spared);
  void Draw(Fault& fault, uint64_t from_ns) const;
  bool RaiseXid(uint32_t gpu, uint32_t xid, uint32_t pid, uint64_t now_ns);
  void RestartDriver(uint64_t now_ns, SessionId spared);
  void LoseGpu(uint32_t gpu, uint32_t xid, uint32_t error, uint64_t now_ns);
  void HurtGpu(uint32_t gpu, const XidRule& rule, uint32_t pid, uint64_t now_ns);
  void Publish(uint32_t gpu, uint32_t type, uint32_t xid, uint32_t pid, uint64_t now_ns);
  uint32_t PlaceOf(uint32_t pid, uint32_t gpu) const;  // of a context of the process; 0: on no MIG device
  uint32_t Culprit(uint32_t gpu) const;  // the process that executes, else one that could; 0: nobody is there
  bool Uses(uint32_t pid, uint32_t gpu) const;
  std::vector<EventInfo> EventsAfter(uint64_t number) const;

  EngineSettings settings_;
  uint64_t started_ns_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  SessionId last_session_ = 0;
  uint64_t last_context_ = 0;
  uint64_t backing_used_ = 0;
  PhysicalMemory physical_;
  Cgroups cgroups_;
  std::set<std::pair<Cgroups::Id, uint32_t>> unwritten_;  // group and GPU whose files are behind
  uint64_t cgroups_written_ns_ = 0;
  std::vector<Arrival> arrivals_;
  std::vector<CrossWait> cross_waits_;
  std::vector<SessionId> broken_;
  std::map<uint64_t, Fault> faults_;  // by id
  uint64_t last_fault_ = 0;
  std::deque<EventInfo> events_;  // the last kMostEvents
  uint64_t event_count_ = 0;
  uint64_t logged_ns_ = 0;
  uint32_t logged_ = 0;
  std::map<std::string, uint64_t> unsupported_;
  LaunchCounts launches_;
  uint64_t submissions_ = 0;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_ENGINE_H_
