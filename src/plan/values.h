// The values every layer above passes on: what a tenant asks (Request), what is held on a node (Occupancy) and what a
// tenant gets (Grant). Plain data, copied freely; no I/O and no clock. Memory is in bytes, compute in hundredths of a
// percent of one GPU.
#ifndef METE_PLAN_VALUES_H_
#define METE_PLAN_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/quantities.h"
#include "gpu/promises.h"

namespace mete::plan {

enum class ComputeMode {
  kWorkConserving,  // nothing promised: what others leave, by weight
  kHard,            // compute-cap: never more, even alone
  kSoft,            // compute-reservation: at least this much when others are busy
};

// What is done about processes that hold memory past the library that keeps their quota.
enum class OnBypass {
  kReport = 0,  // an event, and the promises it breaks are shown as not kept
  kFreeze = 1,  // besides: they are stopped (SIGSTOP)
  kKill = 2,    // besides: they are killed
};

// How long the driver lets a context keep the GPU while others wait: `nvidia-smi compute-policy`'s classes. How long
// each is, is not published; short is less than medium, and medium less than long.
enum class TimeSlice { kDefault = 0, kShort = 1, kMedium = 2, kLong = 3 };

struct Compute {
  ComputeMode mode = ComputeMode::kWorkConserving;
  Percent percent;  // meaningless when work-conserving
  friend bool operator==(const Compute&, const Compute&) = default;
};

// What a tenant asks. An absent value asks for no promise of that kind.
struct Request {
  std::string share;                    // the name the share is to have
  std::string gpu;                      // NVML index, GPU-UUID or MIG-UUID; empty: any
  int gpus = 1;                         // that much on each of so many GPUs
  bool gpus_given = false;              // --gpus was written: alone it asks for whole GPUs
  std::optional<Bytes> memory;          // memory-quota
  std::optional<Compute> compute;       // compute-cap or compute-reservation
  std::string via;                      // the mechanism insisted on; empty: mete chooses
  std::optional<TimeSlice> time_slice;  // the class of slices on the GPU; time-slicing alone has it
  std::optional<int> processes;         // that may use the GPU at a time; absent: any number
};

// What one share holds on one GPU or MIG device.
struct Holding {
  std::string share;
  std::optional<Bytes> memory;          // its quota, if it asked for one
  std::optional<Compute> compute;       // its promise, if it asked for one
  Bytes used;                           // what its processes hold now
  std::string mechanism = "intercept";  // by which it has it
  std::optional<TimeSlice> time_slice;  // the class it asked for
};

// A process that uses the GPU without a share of this node's book.
struct Foreigner {
  uint32_t pid = 0;
  std::string program;  // empty when it cannot be read
  Bytes used;
};

struct GpuOccupancy {
  uint32_t index = 0;  // NVML's
  std::string uuid;    // "GPU-…"
  std::string name;    // "NVIDIA A100-SXM4-40GB"
  Bytes total;         // as NVML reports it
  Bytes reserved;      // by the driver for itself
  bool mig_enabled = false;
  std::vector<Holding> holdings;
  std::vector<Foreigner> foreigners;
};

struct Occupancy {
  std::vector<GpuOccupancy> gpus;  // in the order of NVML's index
};

// What a share gets on one GPU. It follows from the GPU's holdings and changes as shares come and go.
struct Allotment {
  Bytes quota;  // never more than this
  ComputeMode mode = ComputeMode::kWorkConserving;
  uint32_t share = 10000;  // hundredths of a percent: the cap or reservation, 100 % when work-conserving
  uint32_t weight = 1;     // among the shares that are busy, 1 to 10000
  friend bool operator==(const Allotment&, const Allotment&) = default;
};

// A GPU instance with one compute instance that fills it: where it stands. Sizes in memory slices.
struct Instance {
  std::string profile;  // "3g.20gb"
  int start = 0, size = 0;
  friend bool operator==(const Instance&, const Instance&) = default;
};

struct GpuGrant {
  uint32_t index = 0;
  std::string uuid;                // of the GPU, or of the MIG device that interception shares
  std::optional<Bytes> memory;     // as asked
  std::optional<Compute> compute;  // as asked
  Allotment allotment;
  std::optional<Instance> instance;  // mig: the instance on that GPU
};

struct Grant {
  std::string share;
  std::string id;         // 32 hexadecimal digits; names the share for its life
  std::string mechanism;  // "intercept"
  bool preload = false;
  OnBypass on_bypass = OnBypass::kReport;
  std::vector<gpu::Promise> need;       // promises asked for beside memory and compute
  std::optional<TimeSlice> time_slice;  // as asked
  std::optional<int> processes;         // as asked
  std::vector<GpuGrant> gpus;
};

}  // namespace mete::plan

#endif  // METE_PLAN_VALUES_H_
