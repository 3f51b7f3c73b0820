// Making, checking and mapping the two pages, and taking a slot in one. libc only.
//
//   broker:  LimitsPage* limits; int fd = CreateLimits(share_id, gpu_count, generation, &limits);
//            LedgerPage* ledger; int fd = CreateLedger(gpu_count, &ledger);
//   tenant:  const LimitsPage* limits; PageError e = MapLimits(fd, &limits);   // read-only
//            LedgerPage* ledger;       PageError e = MapLedger(fd, &ledger);   // read and write
//
// Ownership: the caller owns returned descriptors and mappings (Unmap). A descriptor may be closed once mapped.
// Threads: no state; the pages themselves are atomic words. Errors: PageError, or -errno where an int is returned.
#ifndef METE_LEDGER_PAGES_H_
#define METE_LEDGER_PAGES_H_

#include <cstddef>
#include <cstdint>

#include "ledger/layout.h"

namespace mete::ledger {

enum class PageError : uint32_t {
  kNone = 0,
  kSystem,     // fstat, fcntl or mmap failed: errno says why
  kSize,       // shorter than a page of this version, or says a size it has not
  kMagic,      // not this kind of page
  kVersion,    // another version of mete wrote it
  kGpuCount,   // 0 or more than kMaxGpus
  kNotSealed,  // could be shrunk under its readers
};
const char* Describe(PageError error);

// Fills the header of a zeroed page. share_id has 16 bytes.
void InitLimits(LimitsPage& page, const uint8_t* share_id, uint32_t gpu_count, uint32_t generation);
void InitLedger(LedgerPage& page, uint32_t gpu_count);

// Checks `bytes` bytes at `page` before anything else of them is used.
PageError CheckLimits(const void* page, size_t bytes);
PageError CheckLedger(const void* page, size_t bytes);

// A sealed memfd with an initialised page, mapped writable for the caller; the descriptor (close-on-exec), or -errno.
// Limits: sealed so that no other writable mapping can ever exist. Ledger: sealed against a change of size.
int CreateLimits(const uint8_t* share_id, uint32_t gpu_count, uint32_t generation, LimitsPage** page);
int CreateLedger(uint32_t gpu_count, LedgerPage** page);

// Maps what a stranger sent: checks seals, size and header first. On an error nothing stays mapped.
PageError MapLimits(int fd, const LimitsPage** page);
PageError MapLedger(int fd, LedgerPage** page);
void Unmap(const LimitsPage* page);
void Unmap(LedgerPage* page);

// Takes a free slot for a process (broker only; `generation` not 0). Its index, or -1 when all kMaxSlots are taken.
// What a dead holder left is cleared by ClearSlot (gate.h), which also frees the slot.
int TakeSlot(LedgerPage& ledger, uint32_t pid, uint64_t start_time, uint32_t generation);

// Publishes a window (broker only). True if it changed: the caller then wakes waiters of window_sequence (futex.h).
bool PublishWindow(LimitsPage& limits, uint32_t gpu, uint64_t until_ns);

// Puts new compute limits in force (broker only), with what the share owes carried over at its new rate, and tells
// waiters. The caller wakes them as above.
void PublishCompute(LimitsPage& limits, LedgerPage& ledger, uint32_t gpu, ComputeMode mode, uint32_t share,
                    uint32_t weight, uint64_t now_ns);

}  // namespace mete::ledger

#endif  // METE_LEDGER_PAGES_H_
