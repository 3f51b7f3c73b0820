// A process's connection to the engine of its emulated node. Used by the emulated libcuda, libnvidia-ml and nvidia-smi.
// libc and the C++ runtime only (it is linked statically into libraries that strangers load).
//
//   Client* client; std::string why;
//   if (!Client::Connect(node_root, &client, &why)) …
//   client->CreateContext(gpu, &context);
//   uint32_t stream; client->OpenStream(context, &stream);
//   uint64_t sequence = client->Submit(stream, work);
//   client->Wait(stream, sequence);
//
// Thread rule: every method may be called from any thread; calls on one stream must be serialised by the caller. After
// fork() the child must not use the parent's Client: it is not connected and every call fails with kLost.
#ifndef METE_EMULATOR_ENGINE_CLIENT_H_
#define METE_EMULATOR_ENGINE_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/engine/gpu_state.h"
#include "emulator/engine/mig_info.h"
#include "emulator/engine/work.h"

namespace mete::emulator {

// One emulated GPU as its board and node define it. Plain data, fixed layout, crosses the socket.
struct GpuInfo {
  char name[96];          // NVML's name, "NVIDIA A100-SXM4-40GB"
  char board[64];         // catalogue id
  char architecture[24];  // "ampere"
  uint8_t uuid[16];
  char pci_bus_id[32];     // "00000000:07:00.0"
  uint32_t minor;          // /dev/nvidiaN
  uint32_t pci_device_id;  // device << 16 | vendor, as NVML; 0 where the catalogue has none
  uint32_t compute_major, compute_minor;
  uint32_t sm_count;
  uint32_t threads_per_sm, blocks_per_sm, registers_per_sm, shared_bytes_per_sm, shared_bytes_per_block_optin;
  uint32_t clock_khz, memory_clock_khz, memory_bus_bits;
  uint32_t pcie_gen, pcie_lanes;
  uint32_t max_power_mw;
  uint32_t mig_capable;  // 1: the board has MIG
  uint32_t pci_subsystem_id;
  uint32_t min_power_mw, idle_clock_khz, idle_memory_clock_khz;
  uint32_t hbm;                         // 1: stacked DRAM, with a temperature sensor of its own
  uint32_t fans;                        // of the board; most data-centre boards have none
  uint32_t nvlinks, nvlink_generation;  // 0: none
  uint32_t slowdown_c, shutdown_c;      // temperatures at which clocks fall, and the board switches off
  uint64_t memory_bytes;                // what NVML calls total
  uint64_t reserved_bytes;              // of it, kept by the driver
  uint64_t l2_bytes;
  uint64_t memory_bytes_per_s;
  uint64_t context_bytes;  // device memory of one context (estimate)
  uint64_t bar1_bytes;
  char vbios[32], part_number[32];
};

enum class Result : int32_t {
  kOk = 0,
  kOutOfMemory,  // the GPU has not that much left
  kNoSuchObject,
  kRefused,       // compute mode forbids
  kContextDead,   // the context has a sticky fault
  kDeviceLost,    // the GPU fell off the bus
  kLost,          // the engine is gone
  kInUse,         // a process stands in the way
  kNotOwner,      // only the node's owner may
  kInvalid,       // a value out of its range
  kNotSupported,  // the GPU has no such thing, or not in its mode
  kInsufficient,  // no room for another MIG instance
};

class Client {
 public:
  // node_root: the driver root of the emulated node. False: `why` says what is missing and what to do.
  static bool Connect(const char* node_root, Client** client, std::string* why);
  virtual ~Client() = default;

  virtual const std::vector<GpuInfo>& Gpus() const = 0;
  virtual const std::string& DriverVersion() const = 0;  // "580.65.06"
  virtual uint32_t CudaVersion() const = 0;              // 13000
  virtual uint64_t BackingBytes() const = 0;             // real memory all clients together may keep as content

  // A context owns streams and memory; it costs GpuInfo::context_bytes. Ends with the process at the latest. A GPU
  // whose MIG mode is on has no contexts of its own: kNoSuchObject.
  virtual Result CreateContext(uint32_t gpu, uint64_t* context) = 0;
  // On a MIG device, a compute instance of that GPU: the context has its SMs and its GPU instance's memory, and lives
  // and runs apart from those in other instances. kNoSuchObject: there is none (any more).
  virtual Result CreateMigContext(uint32_t /*gpu*/, uint32_t /*gpu_instance*/, uint32_t /*compute_instance*/,
                                  uint64_t* /*context*/) {
    return Result::kNoSuchObject;
  }
  virtual Result DestroyContext(uint64_t context) = 0;
  // Marks the context as failed with an Xid and reports it; queued and later work of it is dropped as kContextDead.
  virtual Result FailContext(uint64_t context, uint32_t xid) = 0;

  // Device memory is a count here; content and addresses are the caller's.
  virtual Result ReserveMemory(uint64_t context, uint64_t bytes) = 0;
  virtual Result ReturnMemory(uint64_t context, uint64_t bytes) = 0;
  // Managed memory: it takes the GPU's memory, but cgroups count it as the host's.
  virtual Result ReserveManaged(uint64_t context, uint64_t bytes) { return ReserveMemory(context, bytes); }
  virtual Result ReturnManaged(uint64_t context, uint64_t bytes) { return ReturnMemory(context, bytes); }
  // Physical memory, which is the process's and not a context's (physical.h); `name` is what another process needs to
  // hold it too. The process holds it once after Make and Share, and drops what it holds with its end at the latest.
  virtual Result MakePhysical(uint64_t /*context*/, uint64_t /*bytes*/, uint64_t* /*name*/) { return Result::kRefused; }
  // Of memory that was reserved for the context: it is the context's no more, and is not returned but dropped.
  virtual Result SharePhysical(uint64_t /*context*/, uint64_t /*bytes*/, uint64_t* /*name*/) {
    return Result::kRefused;
  }
  virtual Result HoldPhysical(uint64_t /*name*/) { return Result::kRefused; }  // kNoSuchObject: it is gone
  virtual Result DropPhysical(uint64_t /*name*/) { return Result::kRefused; }
  // From now on it is there too while a descriptor of its file is open that carries the lock (export_lock.h). The one
  // given here is of an opening without it.
  virtual Result ExportPhysical(uint64_t /*name*/, int /*descriptor*/) { return Result::kRefused; }
  // As this process may see it: of a cgroup with a limit, what the limit leaves.
  virtual Result MemoryInfo(uint32_t gpu, uint64_t* free_bytes, uint64_t* total_bytes) = 0;
  // Of a GPU instance, for whoever has a context in it.
  virtual Result MigMemoryInfo(uint32_t /*gpu*/, uint32_t /*gpu_instance*/, uint64_t* /*free_bytes*/,
                               uint64_t* /*total_bytes*/) {
    return Result::kNoSuchObject;
  }
  // Freed memory is scrubbed before somebody else gets it. On a node where a test has switched that off, memory keeps
  // the 32-bit word that it was full of: whoever frees says which, whoever allocates finds it. Nothing and 0 elsewhere.
  virtual void LeaveWord(uint32_t /*gpu*/, uint32_t /*word*/) {}
  virtual uint32_t FoundWord(uint32_t /*gpu*/) { return 0; }
  // Node-wide budget of real pages behind device memory (BackingBytes). False: none left; drop content and count it.
  virtual bool TakeBacking(uint64_t bytes) = 0;
  virtual void GiveBacking(uint64_t bytes) = 0;
  virtual void CountUnsupportedCall(const char* symbol) = 0;

  virtual Result OpenStream(uint64_t context, uint32_t* stream) = 0;
  virtual Result CloseStream(uint32_t stream) = 0;
  // Queues work; sequences of a stream count up from 1. Blocks while the ring is full. 0: the engine is gone.
  virtual uint64_t Submit(uint32_t stream, const Work& work) = 0;
  virtual bool Done(uint32_t stream, uint64_t sequence) const = 0;  // a load, no call
  virtual Result Wait(uint32_t stream, uint64_t sequence) = 0;      // until done, dead or lost
  // Engine time (ns) at which a done kMarker was reached; 0 if not known any more (kept for the last 65536 markers).
  virtual uint64_t MarkerTime(uint32_t stream, uint64_t sequence) const = 0;
  virtual Result ContextState(uint64_t context, uint32_t* xid) const = 0;  // kOk, kContextDead, kDeviceLost, kLost
  // The sticky CUresult that the engine holds against a dead context; 0: it does not know one.
  virtual uint32_t ContextError(uint64_t) const { return 0; }
  virtual uint64_t EngineTime(uint32_t gpu) const = 0;

  // For NVML and nvidia-smi.
  virtual Result State(uint32_t gpu, GpuState* state) = 0;
  virtual Result Processes(uint32_t gpu, std::vector<ProcessInfo>* processes) = 0;
  virtual Result SetComputeMode(uint32_t gpu, uint32_t mode) = 0;
  virtual Result Set(uint32_t /*gpu*/, GpuSetting, uint64_t /*value*/) { return Result::kRefused; }
  virtual Result Accounting(uint32_t /*gpu*/, std::vector<AccountingRecord>*) { return Result::kOk; }
  // Of contexts made from then on; 0 to 3 as in compute-policy.
  virtual Result SetTimeSliceClass(uint32_t /*gpu*/, uint32_t /*time_slice_class*/) { return Result::kRefused; }
  // What `nvidia-smi -r` does: ends what a reset can end. kInUse while a context is there; kDeviceLost if only a
  // restart of the node helps.
  virtual Result ResetGpu(uint32_t /*gpu*/) { return Result::kRefused; }

  // MIG (mig_info.h). On a GPU without it: no profiles, a state that is not capable, kNotSupported from all others.
  // Whoever may ask; only the node's owner may change (kNotOwner).
  virtual Result MigProfiles(uint32_t /*gpu*/, std::vector<MigProfileInfo>*) { return Result::kOk; }
  virtual Result Mig(uint32_t /*gpu*/, MigState* state) {
    *state = {};
    return Result::kOk;
  }
  // How many more of a profile find room: GPU instances (gpu_instance kNoInstance), or compute instances of one.
  // kInvalid: no such profile.
  virtual Result MigRoom(uint32_t /*gpu*/, uint32_t /*gpu_instance*/, uint32_t /*profile_id*/, uint32_t* /*count*/) {
    return Result::kNotSupported;
  }
  // The mode changes at once on an idle GPU (before Hopper that resets it). `activation`: kInUse if contexts, memory or
  // instances are in the way; the mode is pending then until the call is repeated or the GPU is reset. A GPU whose mode
  // changes has no compute mode and no accounting.
  virtual Result SetMigMode(uint32_t /*gpu*/, bool /*on*/, Result* /*activation*/) { return Result::kNotSupported; }
  // start: a placement's, or kAnyStart. kNotSupported: the mode is off; kInvalid: no such profile or placement;
  // kInsufficient: no room there, or anywhere.
  virtual Result CreateGpuInstance(uint32_t /*gpu*/, uint32_t /*profile_id*/, uint32_t /*start*/, MigGpuInstance*) {
    return Result::kNotSupported;
  }
  virtual Result CreateComputeInstance(uint32_t /*gpu*/, uint32_t /*gpu_instance*/, uint32_t /*profile_id*/,
                                       uint32_t /*start*/, MigComputeInstance*) {
    return Result::kNotSupported;
  }
  // kInUse: compute instances, contexts or memory are in it. A reset of the GPU ends all instances.
  virtual Result DestroyGpuInstance(uint32_t /*gpu*/, uint32_t /*gpu_instance*/) { return Result::kNotSupported; }
  virtual Result DestroyComputeInstance(uint32_t /*gpu*/, uint32_t /*gpu_instance*/, uint32_t /*compute_instance*/) {
    return Result::kNotSupported;
  }

  // Of a cgroup, named below the root of the node's tree (cgroups.h). kRefused: this driver has no such limits;
  // kNoSuchObject: no such group, or no limit of its own.
  virtual Result SetLimits(uint32_t /*gpu*/, const std::string& /*group*/, uint64_t /*soft*/, uint64_t /*hard*/) {
    return Result::kRefused;
  }
  virtual Result GetLimits(uint32_t /*gpu*/, const std::string& /*group*/, uint64_t* /*soft*/, uint64_t* /*hard*/,
                           uint64_t* /*current*/) {
    return Result::kRefused;
  }

  // Events of the node, numbered from 1, the last 1024 kept. `after`: only later ones.
  virtual Result Events(uint64_t /*after*/, std::vector<EventInfo>*) { return Result::kOk; }
  virtual uint64_t EventCount() const { return 0; }                             // a load, no call
  virtual void AwaitEvent(uint64_t /*seen*/, uint64_t /*timeout_ns*/) const {}  // until EventCount() is not `seen`
  // Faults on purpose; the node's owner's only. kNoSuchObject: no such GPU, process or fault. kRefused: this board or
  // this moment cannot have it.
  virtual Result InjectFault(const FaultSpec&, uint64_t* /*id*/) { return Result::kRefused; }
  // kAllGpus; id 0: all, and the GPUs are sound again.
  virtual Result ClearFaults(uint32_t /*gpu*/, uint64_t /*id*/) { return Result::kRefused; }
  virtual Result Faults(std::vector<FaultInfo>*) { return Result::kOk; }
};

// The driver root of the library this address lives in: realpath of its file, up to the folder that holds the node's
// `run/engine.json`. Empty if there is none.
std::string NodeRootOf(const void* address_in_library);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_CLIENT_H_
