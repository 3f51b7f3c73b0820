// One run in virtual time: the model of a GPU, the shares' processes as closed loops, a broker, and between them the
// real ledger, gate and arbiter that tenants and the broker use. Deterministic for a seed. Single-threaded; a run owns
// all it makes. Times are nanoseconds of virtual time since the start of the run unless a name says otherwise.
#ifndef METE_EMULATOR_SIMULATE_SIMULATION_H_
#define METE_EMULATOR_SIMULATE_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "emulator/engine/model.h"
#include "emulator/simulate/scenario.h"
#include "ledger/arbiter.h"
#include "ledger/gate.h"

namespace mete::emulator {

inline constexpr uint64_t kSampleNs = 10'000'000;

struct ShareTimeline {              // index i: at i * kSampleNs
  std::vector<uint64_t> gpu_ns;     // time in which the share held the GPU: README.md, What is measured
  std::vector<uint64_t> completed;  // kernels seen to be complete
  uint64_t longest_gap_ns = 0;      // between two completions seen, from the share's start on
  uint64_t charged_ns = 0;          // by the ledger
  uint64_t waits = 0;
  double kernel_ns = 0;  // as calibrated
  struct Request {
    uint64_t arrived_ns, ended_ns;
  };
  std::vector<Request> requests;  // of a workload, ended ones
  uint64_t alive = 0;             // processes at the end
};

struct RunResult {
  std::vector<ShareTimeline> shares;
  GpuCounters counters;
  uint64_t broker_steps = 0, doorbells = 0, kills = 0, faults = 0;
};

class Simulation {
 public:
  // Every share of `scenario` must have its kernel set (see Cases).
  // `compute_major`: of the board's compute capability; some Xids mean more to newer boards.
  Simulation(const GpuParameters& gpu, const Scenario& scenario, uint32_t compute_major = 8);
  StatusOr<RunResult> Run();

 private:
  enum class What { kTry, kNotice, kClose, kBrokerWake, kHeartbeat, kSample, kScripted, kDeath, kArrival };
  struct Event {
    uint64_t at;
    uint64_t order;  // equal instants keep the order in which they were planned
    What what;
    uint64_t index;  // process, scripted event, or slot << 32 | share
    uint64_t token;  // kTry, kBrokerWake: void if it is not the latest; kNotice: stream; kClose: stream of the process
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  // Launches that the gate let in together, as the interceptor does it.
  struct Batch {
    uint64_t predicted_ns = 0, began = 0, last_done = 0, cost_left = 0;
    uint32_t launches = 0, done = 0, left = 0;
    size_t step = 0;
    bool mixed = false, shut = false, company = false;
    uint64_t finished = 0, stream_finished = 0;  // the ledger's count and the stream's when it began
  };
  struct Launch {
    std::shared_ptr<Batch> batch;  // null: not gated
    uint64_t done_at = 0;
  };
  struct Stream {
    StreamId id;
    std::shared_ptr<Batch> open;
    uint64_t pending = 0, finished = 0, last_done = 0;
    uint64_t usual = 256;  // launches in the last batch: the next is let in for twice as many at most
  };
  struct Process {
    uint32_t share = 0;
    ledger::View view;
    ContextId context = 0;
    std::vector<Stream> streams;
    uint32_t next_stream = 0, in_flight = 0;
    bool alive = true, waiting = false;
    uint32_t group = UINT32_MAX, in_step = 0;  // of those in lock step, and launches of this step
    uint64_t began_wait = 0, try_at = 0, token = 0, last_notice = 0, phase = 0;
    std::vector<uint64_t> predicted_ns;  // by step; 0: never measured
    // Of a workload: requests that wait for their turn, and the one under way.
    std::deque<uint64_t> arrivals;
    bool in_request = false;
    uint64_t arrived = 0, traced = 0;
    size_t step = 0;
  };
  struct Group {
    std::string name;
    uint32_t members = 0, ended = 0;
  };
  struct Share {
    std::unique_ptr<ledger::LimitsPage> limits;
    std::unique_ptr<ledger::LedgerPage> ledger;
    std::vector<Step> steps;
    bool requests = false;  // of a workload; else one kernel again and again
    uint64_t completed = 0, last_completion = 0,
             other_gpu_ns = 0;  // of dead processes, and of changes between its contexts
  };

  Status Prepare();
  void AddProcess(uint32_t share);
  PartitionId PartitionOf(const ShareSpec& spec);  // made when it is asked for first
  void Plan(uint64_t at, What what, uint64_t index, uint64_t token = 0);
  void Handle(const Event& event);
  void SeeChange();
  uint64_t Draw(Range range);

  void PlanTry(size_t process, uint64_t at);
  void Try(size_t process);
  bool OffUntil(const Process& process, uint64_t* on_at) const;
  void LaunchOn(size_t process, const std::shared_ptr<Batch>& batch);
  void Shut(Process& process, Stream& stream);
  void FinishIfDone(Process& process, Stream& stream, const std::shared_ptr<Batch>& batch);
  void Learn(Process& process, const Stream& stream, const Batch& batch);
  bool NextStep(size_t process);  // false: nothing to launch now
  void PlanArrival(size_t process, uint64_t from_ns);
  void Arrived(size_t process);
  void EndRequest(size_t process);
  void EndStep(Process& process);
  void Notice(size_t process, StreamId stream);
  void Completed(const Completion& done);
  void Sample();

  void Ring();
  void WakeBroker(uint64_t at);
  void BrokerStep();
  void WakeWaiters(uint32_t share, size_t most = SIZE_MAX);
  void Scripted(size_t index);
  bool Kill(const EventSpec& event);
  void KillProcess(Process& process);
  void Fault(const EventSpec& event);
  void HurtByXid(const EventSpec& event, uint32_t xid);
  void Death(uint32_t share, uint32_t slot);

  const GpuParameters parameters_;
  const Scenario scenario_;
  const uint32_t compute_major_;
  GpuModel model_;
  ledger::Arbiter arbiter_;
  std::mt19937_64 random_;
  uint64_t now_, order_ = 0, broker_at_ = UINT64_MAX, broker_token_ = 0;
  bool broker_alive_ = true, lost_ = false;
  double clock_ = 1, memory_ = 1;
  std::vector<Share> shares_;
  std::vector<Process> processes_;
  std::vector<Group> groups_;
  std::unordered_map<uint32_t, InstanceId> instances_;  // by PartSpec's numbers
  std::map<std::pair<uint32_t, uint32_t>, PartitionId> partitions_;
  std::vector<uint64_t> unseen_deaths_;                                 // while the broker is down
  std::unordered_map<StreamId, std::pair<size_t, size_t>> process_of_;  // and which of its streams
  std::unordered_map<StreamId, std::deque<Launch>> launches_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  ContextId holder_ = 0;       // of the GPU, last; 0: nobody that lives
  uint64_t change_began_ = 0;  // 0: it holds it still
  RunResult result_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_SIMULATION_H_
