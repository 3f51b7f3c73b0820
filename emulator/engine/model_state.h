// The inside of GpuModel: what there is (contexts, streams, kernels, copies) and the steps that move it. Private to the
// model; see model.h for the contract. Not thread-safe.
//
// An event is handled in four steps: Progress (integrate to the event's instant), Retire (what has reached its end),
// Settle (stream heads start or complete; completions are handed out), Schedule (time slices, dispatch of blocks,
// rates, next event). A completion is handed out before Schedule looks, so that work submitted from its callback counts
// as being there.
#ifndef METE_EMULATOR_ENGINE_MODEL_STATE_H_
#define METE_EMULATOR_ENGINE_MODEL_STATE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "emulator/engine/model.h"
#include "emulator/engine/shares.h"

namespace mete::emulator {

// Blocks of one kernel that began together and move at one rate. `waves_left` counts from the present wave downwards:
// 7.3 is a wave with 0.3 to go and seven more that the same slots are sure to take.
struct Cohort {
  uint64_t blocks;
  double waves_left;
};

struct Kernel {
  KernelCost cost;
  uint64_t unstarted = 0;  // blocks that no cohort has taken
  uint64_t in_flight = 0;  // blocks of all cohorts
  std::vector<Cohort> cohorts;
  bool resident = false;  // past the front end
  double launch_left_ns = 0;
  double per_sm = 1;  // blocks that fit on an SM
  double issue_cycles = 0;
  double cold_bytes = 0;  // still to be fetched before its accesses can hit in the L2
  double rate = 0, dram_rate = 0, sm_use = 0;
};

struct Stream {
  StreamId id = 0;
  ContextId context = 0;
  std::deque<Work> queue;  // front: the head
  uint64_t submitted = 0, done = 0;
  bool busy = false;                                   // the head has begun
  bool closed = false;                                 // ends when its queue is empty
  bool listed = false;                                 // in State::ready
  Kernel kernel;                                       // of the head
  std::vector<std::pair<uint64_t, StreamId>> waiters;  // (sequence, stream) that wait for this stream
};

inline constexpr uint32_t kCopyDirections = 3;
inline constexpr size_t kResidentGrids = 128;  // CUDA's limit of concurrent kernels

// Memory, L2 and copy engines: the whole board or a MIG GPU instance.
struct ModelInstance {
  InstanceId id = 0;
  InstanceShape shape;
  GpuParameters gpu;  // the board's as they are now, with this instance's part of bandwidth and L2
  uint32_t partitions = 0;
  bool closed = false;  // goes with its last partition
};

struct Copy {
  StreamId stream;
  ContextId context;
  const ModelInstance* instance;
  double delay_ns;
  double bytes_left;
  double rate = 0;
};

struct Context;

// SMs on which one context at a time executes.
struct Partition {
  PartitionId id = 0;
  ModelInstance* instance = nullptr;
  double sms = 1;
  uint32_t contexts = 0;
  bool closed = false;             // goes with its last context
  std::deque<ContextId> run_list;  // groups with work, waiting for their turn
  Context* active = nullptr;       // whose group the SMs execute
  ContextId switching_to = 0;      // not 0: between two groups
  uint64_t switch_end = 0;
  uint64_t slice_end = 0;
  bool idle = true;  // the active group had no work when last looked at
};

struct Context {
  ContextId id = 0;
  Partition* partition = nullptr;
  std::vector<StreamId> streams;
  std::vector<Stream*> kernels;                  // launching or resident, in order of arrival
  std::deque<Stream*> waiting;                   // heads beyond kResidentGrids
  std::deque<StreamId> copies[kCopyDirections];  // behind the one that runs
  bool copying[kCopyDirections] = {};
  bool listed = false;  // in its partition's run_list
  bool hung = false;    // its kernels do not end
  uint64_t slice_ns = 0;
  uint64_t outstanding = 0;  // work submitted and not done
  double busy_ns = 0;
  double dram_bytes = 0;  // moved for it so far
  double warm_bytes = 0;  // of its data in the L2
};

struct GpuModel::State {
  explicit State(const GpuParameters& parameters) : gpu(parameters), rated(parameters) {
    gpu.sm_count = std::max<uint32_t>(gpu.sm_count, 1);
    gpu.time_slice_ns = std::max<uint64_t>(gpu.time_slice_ns, 1);
    Partition& all = partitions[kAllSms];
    all.instance = &instances[kWholeBoard];
    all.instance->partitions = 1;
    all.sms = gpu.sm_count;
    FitInstances();
  }

  enum class What { kSubmit, kRemoveContext, kRemoveStream, kSpeed, kHang, kGoOn };
  struct Later {
    What what;
    uint32_t id;
    Work work;
    double clock = 1, memory = 1;  // kSpeed
  };

  GpuParameters gpu;          // as it is now
  const GpuParameters rated;  // as it was made
  uint64_t now = 0;
  ContextId last_context = 0;
  StreamId last_stream = 0;
  std::unordered_map<ContextId, Context> contexts;
  std::unordered_map<StreamId, Stream> streams;
  InstanceId last_instance = kWholeBoard;
  PartitionId last_partition = kAllSms;
  std::map<InstanceId, ModelInstance> instances;
  std::map<PartitionId, Partition> partitions;
  std::multimap<uint64_t, Later> later;       // calls whose instant has not come; equal keys keep their order
  std::deque<StreamId> ready;                 // streams whose head may start or whose queue may have ended
  std::vector<Completion> completions;        // not handed out yet
  bool hung = false;                          // the whole engine
  std::vector<Copy> copies[kCopyDirections];  // at most one of each context
  std::optional<uint64_t> next;               // event after `now` as of the last Schedule
  bool unscheduled = false;                   // something changed since
  double busy_ns = 0, memory_busy_ns = 0, sm_busy_ns = 0, bytes = 0;
  double copied_bytes[kCopyDirections] = {};
  double sm_active_ns = 0, occupancy_ns = 0, class_busy_ns[kInstructionClasses] = {};
  uint64_t switches = 0;
  std::vector<KernelLoad> kernel_loads;  // scratch of SetRates
  std::vector<CopyLoad> copy_loads;

  // model.cc: streams and calls.
  Context* FindContext(ContextId id);
  Stream* FindStream(StreamId id);
  void Enqueue(Stream& stream, const Work& work);
  void MarkReady(Stream& stream);
  void StartHeads(Stream& stream);
  void StartKernel(Stream& stream);
  void CompleteHead(Stream& stream);
  void WakeWaiters(Stream& stream, uint64_t done);
  void Erase(Stream& stream);  // from every table; wakes its waiters
  void DropContext(ContextId id);
  void FitInstances();  // after the board's speed changed
  void CloseIfEmpty(PartitionId id);
  void Hang(ContextId id, bool on);
  void RunDue();  // `later` calls whose instant has come
  void Settle();

  // schedule.cc: time.
  void Progress(uint64_t to);
  bool ProgressKernels(Partition& partition, double dt, double* dram_bytes);  // true: something is resident
  void CountActivity(const Kernel& kernel, double sms, double dt);
  void Retire();
  void RetireKernels(Context& active);
  void Schedule();
  void TakeTurns(Partition& partition);
  void BeginSwitch(Partition& partition);
  void EndSwitch(Partition& partition);
  void Dispatch(Partition& partition);
  void SetRates();
  void SetRates(const ModelInstance& instance);
  void SetCopyLoads(const ModelInstance& instance);
  void FindNext();
  void StartCopy(Context& context, uint32_t direction, StreamId stream);
  void EndCopy(uint32_t direction, size_t index);
  void Runnable(Context& context);
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_MODEL_STATE_H_
