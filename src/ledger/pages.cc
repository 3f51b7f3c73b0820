#include "ledger/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger/slots.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace mete::ledger {
namespace {

// Every page begins with these four words.
struct Header {
  uint32_t magic, version, bytes, gpu_count;
};
static_assert(offsetof(LimitsPage, gpu_count) == offsetof(Header, gpu_count));
static_assert(offsetof(LedgerPage, gpu_count) == offsetof(Header, gpu_count));

PageError CheckHeader(const void* page, size_t bytes, uint32_t magic, size_t expected_bytes) {
  if (page == nullptr || bytes < sizeof(Header)) return PageError::kSize;
  Header header;
  memcpy(&header, page, sizeof(header));
  if (header.magic != magic) return PageError::kMagic;
  if (header.version != kLayoutVersion) return PageError::kVersion;
  if (bytes < expected_bytes || header.bytes != expected_bytes) return PageError::kSize;
  if (header.gpu_count == 0 || header.gpu_count > kMaxGpus) return PageError::kGpuCount;
  return PageError::kNone;
}

int CloseWith(int fd, int error) {
  close(fd);
  return -error;
}

// A memfd of `bytes` zero bytes mapped writable at *mapping.
int CreateMapped(const char* name, size_t bytes, void** mapping) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -errno;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CloseWith(fd, errno);
  *mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (*mapping == MAP_FAILED) return CloseWith(fd, errno);
  return fd;
}

int Seal(int fd, int seals, void* mapping, size_t bytes) {
  if (fcntl(fd, F_ADD_SEALS, seals) == 0) return fd;
  const int error = errno;
  munmap(mapping, bytes);
  return CloseWith(fd, error);
}

PageError MapChecked(int fd, size_t bytes, int protection, uint32_t magic, void** page) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return errno == EINVAL ? PageError::kNotSealed : PageError::kSystem;
  if ((seals & F_SEAL_SHRINK) == 0) return PageError::kNotSealed;
  struct stat status;
  if (fstat(fd, &status) != 0) return PageError::kSystem;
  if (status.st_size < 0 || static_cast<size_t>(status.st_size) < bytes) return PageError::kSize;
  void* mapping = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return PageError::kSystem;
  const PageError error = CheckHeader(mapping, bytes, magic, bytes);
  if (error != PageError::kNone) {
    munmap(mapping, bytes);
    return error;
  }
  *page = mapping;
  return PageError::kNone;
}

}  // namespace

const char* Describe(PageError error) {
  switch (error) {
    case PageError::kNone: return "a valid page";
    case PageError::kSystem: return "the page could not be examined or mapped";
    case PageError::kSize: return "the page has not the size of this version's pages";
    case PageError::kMagic: return "not a page of this kind (its first word is wrong)";
    case PageError::kVersion: return "the page was written by another version of mete";
    case PageError::kGpuCount: return "the page names no GPU, or more than there can be";
    case PageError::kNotSealed: return "the page is not sealed against being shortened";
  }
  return "unknown page error";
}

void InitLimits(LimitsPage& page, const uint8_t* share_id, uint32_t gpu_count, uint32_t generation) {
  page.magic = kLimitsMagic;
  page.version = kLayoutVersion;
  page.bytes = sizeof(LimitsPage);
  page.gpu_count = gpu_count;
  memcpy(page.share_id, share_id, sizeof(page.share_id));
  page.generation.store(generation, std::memory_order_relaxed);
}

void InitLedger(LedgerPage& page, uint32_t gpu_count) {
  page.magic = kLedgerMagic;
  page.version = kLayoutVersion;
  page.bytes = sizeof(LedgerPage);
  page.gpu_count = gpu_count;
}

PageError CheckLimits(const void* page, size_t bytes) {
  return CheckHeader(page, bytes, kLimitsMagic, sizeof(LimitsPage));
}

PageError CheckLedger(const void* page, size_t bytes) {
  return CheckHeader(page, bytes, kLedgerMagic, sizeof(LedgerPage));
}

int CreateLimits(const uint8_t* share_id, uint32_t gpu_count, uint32_t generation, LimitsPage** page) {
  void* mapping = nullptr;
  const int fd = CreateMapped("mete-limits", sizeof(LimitsPage), &mapping);
  if (fd < 0) return fd;
  *page = static_cast<LimitsPage*>(mapping);
  InitLimits(**page, share_id, gpu_count, generation);
  return Seal(fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL, mapping, sizeof(LimitsPage));
}

int CreateLedger(uint32_t gpu_count, LedgerPage** page) {
  void* mapping = nullptr;
  const int fd = CreateMapped("mete-ledger", sizeof(LedgerPage), &mapping);
  if (fd < 0) return fd;
  *page = static_cast<LedgerPage*>(mapping);
  InitLedger(**page, gpu_count);
  return Seal(fd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, mapping, sizeof(LedgerPage));
}

PageError MapLimits(int fd, const LimitsPage** page) {
  void* mapping = nullptr;
  const PageError error = MapChecked(fd, sizeof(LimitsPage), PROT_READ, kLimitsMagic, &mapping);
  if (error == PageError::kNone) *page = static_cast<const LimitsPage*>(mapping);
  return error;
}

PageError MapLedger(int fd, LedgerPage** page) {
  void* mapping = nullptr;
  const PageError error = MapChecked(fd, sizeof(LedgerPage), PROT_READ | PROT_WRITE, kLedgerMagic, &mapping);
  if (error == PageError::kNone) *page = static_cast<LedgerPage*>(mapping);
  return error;
}

void Unmap(const LimitsPage* page) {
  if (page != nullptr) munmap(const_cast<LimitsPage*>(page), sizeof(LimitsPage));
}

void Unmap(LedgerPage* page) {
  if (page != nullptr) munmap(page, sizeof(LedgerPage));
}

int TakeSlot(LedgerPage& ledger, uint32_t pid, uint64_t start_time, uint32_t generation) {
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    Slot& slot = ledger.slots[i];
    uint32_t free = 0;
    if (!slot.generation.compare_exchange_strong(free, generation, std::memory_order_seq_cst)) continue;
    slot.pid.store(pid, std::memory_order_relaxed);
    slot.start_time.store(start_time, std::memory_order_relaxed);
    // Before the holder can write its words, every reader's sum must reach them.
    uint32_t used = ledger.slots_used.load(std::memory_order_seq_cst);
    while (used < i + 1 && !ledger.slots_used.compare_exchange_weak(used, i + 1, std::memory_order_seq_cst)) {
    }
    return static_cast<int>(i);
  }
  return -1;
}

bool PublishWindow(LimitsPage& limits, uint32_t gpu, uint64_t until_ns) {
  GpuLimits& words = limits.gpu[gpu];
  if (words.window_until_ns.load(std::memory_order_relaxed) == until_ns) return false;
  words.window_until_ns.store(until_ns, std::memory_order_seq_cst);
  words.window_sequence.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

void PublishCompute(LimitsPage& limits, LedgerPage& ledger, uint32_t gpu, ComputeMode mode, uint32_t share,
                    uint32_t weight, uint64_t now_ns) {
  GpuLimits& words = limits.gpu[gpu];
  const uint32_t old_share = internal::ClampShare(words.share.load(std::memory_order_relaxed));
  const uint32_t new_share = internal::ClampShare(share);
  words.mode.store(static_cast<uint32_t>(mode), std::memory_order_relaxed);
  words.weight.store(internal::ClampShare(weight), std::memory_order_relaxed);
  words.share.store(new_share, std::memory_order_seq_cst);
  // TAT is ahead of now by (GPU time owed) / share: the same debt is a shorter wait at a larger share.
  std::atomic<uint64_t>& tat = ledger.gpu[gpu].tat_ns;
  uint64_t old_tat = tat.load(std::memory_order_relaxed);
  for (;;) {
    if (old_tat <= now_ns) break;
    const uint64_t new_ahead = internal::Scale(old_tat - now_ns, old_share, new_share);
    if (tat.compare_exchange_weak(old_tat, internal::SaturatingAdd(now_ns, new_ahead), std::memory_order_seq_cst))
      break;
  }
  words.window_sequence.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace mete::ledger
