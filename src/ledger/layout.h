// The two pages that a share's processes and the broker have in common. See README.md for the byte-by-byte description.
//
// Limits page: written by the broker, sealed so that nobody else can map it writable. Ledger page: written by the
// share's processes and the broker. Every shared datum is one naturally aligned word and only ever accessed atomically:
// there is no lock and no sequence lock, so a process that dies at any instruction leaves nothing half-written.
// Readers must treat every word of a ledger as hostile: clamp, never index by it unchecked.
//
// Times are CLOCK_MONOTONIC nanoseconds of the host. A zeroed page is a valid empty page but for its header.
#ifndef METE_LEDGER_LAYOUT_H_
#define METE_LEDGER_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace mete::ledger {

inline constexpr uint32_t kLimitsMagic = 0x6D4C696D;  // "miLm"
inline constexpr uint32_t kLedgerMagic = 0x6D4C6564;  // "deLm"
inline constexpr uint32_t kLayoutVersion = 2;
inline constexpr uint32_t kMaxGpus = 16;
inline constexpr uint32_t kMaxSlots = 1024;
inline constexpr uint32_t kFullShare = 10000;               // hundredths of a percent
inline constexpr uint64_t kNoQuota = UINT64_MAX;            // memory not limited
inline constexpr uint64_t kWindowOpen = UINT64_MAX;         // no other share wants this GPU
inline constexpr uint64_t kWindowClosed = 0;                // ring the doorbell to get one
inline constexpr uint64_t kWindowQueued = 1;                // closed, and the broker knows that the share waits for it
inline constexpr uint64_t kHeartbeatStaleNs = 100'000'000;  // older: windows fall back to caps

enum class ComputeMode : uint32_t {
  kWorkConserving = 0,  // no promise; what others leave, by weight
  kHard = 1,            // never more than `share`, even alone
  kSoft = 2,            // at least `share` when others are busy, more when they are not
};

// Bits of GpuLimits::flags.
inline constexpr uint32_t kTracked = 1;  // launches on this GPU are counted, budgeted and windowed

struct alignas(64) GpuLimits {
  uint8_t uuid[16];                       // NVML's UUID as bytes; fixed for the life of the page
  std::atomic<uint64_t> memory_quota;     // bytes, kNoQuota for none
  std::atomic<uint64_t> context_bytes;    // charged for a process's first context
  std::atomic<uint32_t> share;            // hundredths of a percent, 1..kFullShare
  std::atomic<uint32_t> weight;           // 1..kFullShare
  std::atomic<uint32_t> mode;             // ComputeMode
  std::atomic<uint32_t> flags;            // kTracked
  std::atomic<uint64_t> window_until_ns;  // kWindowClosed, -Queued, -Open, or the instant the window closes
  std::atomic<uint32_t> window_sequence;  // futex word: changes whenever window_until_ns does
  uint32_t reserved;
};

struct alignas(64) LimitsPage {
  uint32_t magic, version;
  uint32_t bytes;      // sizeof(LimitsPage)
  uint32_t gpu_count;  // 1..kMaxGpus
  uint8_t share_id[16];
  std::atomic<uint64_t> heartbeat_ns;  // the broker's last sign of life
  std::atomic<uint32_t> ended;         // 1: the share was released; launches and allocations are refused
  std::atomic<uint32_t> generation;    // of the broker; a new one hands out new pages
  std::atomic<uint32_t> audits;        // futex word: counts up when the broker has held the driver's word against us
  std::atomic<uint32_t> leaving;       // slots whose process has died and whose memory the next audit gives back
  GpuLimits gpu[kMaxGpus];
};

// Who holds a slot. Written by the broker alone. generation 0: free.
struct Slot {
  std::atomic<uint32_t> generation;
  std::atomic<uint32_t> pid;         // in the broker's pid name space
  std::atomic<uint64_t> start_time;  // /proc/PID/stat field 22
};

struct alignas(64) GpuLedger {
  std::atomic<uint64_t> tat_ns;         // budget: GCRA theoretical arrival time
  std::atomic<uint64_t> busy_since_ns;  // odd: busy, and charged up to here; even: idle since. See gate.h
  std::atomic<uint64_t> used_ns;        // GPU time charged so far: the union of in-flight intervals
  std::atomic<uint64_t> denials;        // refused allocations
  std::atomic<uint64_t> last_denied_bytes;
  std::atomic<uint64_t> waits;  // launches that had to wait
  std::atomic<uint64_t> waited_ns;
  std::atomic<uint64_t>
      finished;  // counts up whenever work of any slot is finished: nothing else ran between two equal values
  alignas(64) std::atomic<uint64_t> memory[kMaxSlots];    // bytes held or reserved by the slot's process
  alignas(64) std::atomic<uint64_t> overhead[kMaxSlots];  // written by the broker: what it holds beyond that
  alignas(64) std::atomic<uint64_t> deferred[kMaxSlots];  // of `memory`: given up, until an audit has seen it gone
  alignas(64) std::atomic<uint64_t> outstanding_ns[kMaxSlots];  // predicted cost of its launches in flight
  alignas(64) std::atomic<uint32_t> in_flight[kMaxSlots];       // its launches in flight
  alignas(64) std::atomic<uint32_t> waiting[kMaxSlots];         // its threads that wait for a window
  alignas(64) std::atomic<uint32_t> exported[kMaxSlots];        // 1: other processes may hold memory that it made
};

struct alignas(64) LedgerPage {
  uint32_t magic, version;
  uint32_t bytes;  // sizeof(LedgerPage)
  uint32_t gpu_count;
  std::atomic<uint32_t> slots_used;  // no slot at or above this index was ever taken; readers clamp it
  Slot slots[kMaxSlots];
  GpuLedger gpu[kMaxGpus];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(GpuLimits) == 64 && sizeof(Slot) == 16);

// One process's place in the pages. Plain pointers into mappings that outlive it; copy freely.
struct View {
  const LimitsPage* limits = nullptr;
  LedgerPage* ledger = nullptr;
  uint32_t gpu = 0;   // index into both pages' gpu[]
  uint32_t slot = 0;  // this process's slot
};

}  // namespace mete::ledger

#endif  // METE_LEDGER_LAYOUT_H_
