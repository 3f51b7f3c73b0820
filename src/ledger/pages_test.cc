#include "ledger/pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ledger/futex.h"

namespace mete::ledger {
namespace {

constexpr uint8_t kId[16] = {9, 8, 7};

struct Fd {
  ~Fd() {
    if (value >= 0) close(value);
  }
  int value;
};

TEST(Pages, TheHolderCanReadItsLimitsAndNeverWriteThem) {
  LimitsPage* written = nullptr;
  const Fd fd{CreateLimits(kId, 2, 7, &written)};
  ASSERT_GE(fd.value, 0);
  const LimitsPage* seen = nullptr;
  ASSERT_EQ(MapLimits(fd.value, &seen), PageError::kNone);
  written->gpu[1].memory_quota = 123;
  EXPECT_EQ(seen->gpu[1].memory_quota.load(), 123u) << "the broker's writes are seen";
  EXPECT_EQ(seen->generation.load(), 7u);
  EXPECT_EQ(memcmp(seen->share_id, kId, sizeof(kId)), 0);
  EXPECT_EQ(mmap(nullptr, sizeof(LimitsPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.value, 0), MAP_FAILED);
  EXPECT_NE(mprotect(const_cast<LimitsPage*>(seen), sizeof(LimitsPage), PROT_READ | PROT_WRITE), 0);
  const char byte = 1;
  EXPECT_LT(pwrite(fd.value, &byte, 1, 0), 0);
  EXPECT_NE(ftruncate(fd.value, 0), 0);
  EXPECT_NE(fallocate(fd.value, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_NE(fcntl(fd.value, F_ADD_SEALS, F_SEAL_WRITE), 0);
  Unmap(seen);
  Unmap(written);
}

TEST(Pages, ALedgerIsSharedAndKeepsItsSize) {
  LedgerPage* broker = nullptr;
  const Fd fd{CreateLedger(1, &broker)};
  ASSERT_GE(fd.value, 0);
  LedgerPage* tenant = nullptr;
  ASSERT_EQ(MapLedger(fd.value, &tenant), PageError::kNone);
  tenant->gpu[0].memory[3] = 5;
  EXPECT_EQ(broker->gpu[0].memory[3].load(), 5u);
  EXPECT_NE(ftruncate(fd.value, 0), 0);
  Unmap(tenant);
  Unmap(broker);
}

TEST(Pages, StrangersPagesAreRefusedWithTheReason) {
  EXPECT_EQ(CheckLedger(nullptr, 0), PageError::kSize);
  LedgerPage* ledger = nullptr;
  const Fd fd{CreateLedger(1, &ledger)};
  const LimitsPage* wrong = nullptr;
  EXPECT_EQ(MapLimits(fd.value, &wrong), PageError::kMagic);
  EXPECT_EQ(wrong, nullptr);
  LedgerPage* mapped = nullptr;
  ledger->version = 99;
  EXPECT_EQ(MapLedger(fd.value, &mapped), PageError::kVersion);
  ledger->version = kLayoutVersion;
  ledger->bytes = 12;
  EXPECT_EQ(MapLedger(fd.value, &mapped), PageError::kSize);
  ledger->bytes = sizeof(LedgerPage);
  ledger->gpu_count = kMaxGpus + 1;
  EXPECT_EQ(MapLedger(fd.value, &mapped), PageError::kGpuCount);
  ledger->gpu_count = 0;
  EXPECT_EQ(MapLedger(fd.value, &mapped), PageError::kGpuCount);
  const Fd loose{memfd_create("loose", MFD_CLOEXEC)};
  ASSERT_EQ(ftruncate(loose.value, sizeof(LedgerPage)), 0);
  EXPECT_EQ(MapLedger(loose.value, &mapped), PageError::kNotSealed);
  const Fd small{memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  ASSERT_EQ(fcntl(small.value, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(MapLedger(small.value, &mapped), PageError::kSize);
  EXPECT_EQ(MapLedger(-1, &mapped), PageError::kSystem);
  EXPECT_STRNE(Describe(PageError::kNotSealed), Describe(PageError::kMagic));
  Unmap(ledger);
}

// README.md has these numbers; another implementation may rely on them.
TEST(Pages, LieAsDocumented) {
  EXPECT_EQ(sizeof(LimitsPage), 1088u);
  EXPECT_EQ(offsetof(LimitsPage, share_id), 16u);
  EXPECT_EQ(offsetof(LimitsPage, heartbeat_ns), 32u);
  EXPECT_EQ(offsetof(LimitsPage, ended), 40u);
  EXPECT_EQ(offsetof(LimitsPage, audits), 48u);
  EXPECT_EQ(offsetof(LimitsPage, leaving), 52u);
  EXPECT_EQ(offsetof(LimitsPage, gpu), 64u);
  EXPECT_EQ(offsetof(GpuLimits, memory_quota), 16u);
  EXPECT_EQ(offsetof(GpuLimits, context_bytes), 24u);
  EXPECT_EQ(offsetof(GpuLimits, share), 32u);
  EXPECT_EQ(offsetof(GpuLimits, mode), 40u);
  EXPECT_EQ(offsetof(GpuLimits, window_until_ns), 48u);
  EXPECT_EQ(offsetof(GpuLimits, window_sequence), 56u);
  EXPECT_EQ(sizeof(LedgerPage), 738368u);
  EXPECT_EQ(offsetof(LedgerPage, slots_used), 16u);
  EXPECT_EQ(offsetof(LedgerPage, slots), 24u);
  EXPECT_EQ(offsetof(LedgerPage, gpu), 16448u);
  EXPECT_EQ(sizeof(GpuLedger), 45120u);
  EXPECT_EQ(offsetof(GpuLedger, busy_since_ns), 8u);
  EXPECT_EQ(offsetof(GpuLedger, denials), 24u);
  EXPECT_EQ(offsetof(GpuLedger, waits), 40u);
  EXPECT_EQ(offsetof(GpuLedger, memory), 64u);
  EXPECT_EQ(offsetof(GpuLedger, overhead), 8256u);
  EXPECT_EQ(offsetof(GpuLedger, deferred), 16448u);
  EXPECT_EQ(offsetof(GpuLedger, outstanding_ns), 24640u);
  EXPECT_EQ(offsetof(GpuLedger, in_flight), 32832u);
  EXPECT_EQ(offsetof(GpuLedger, waiting), 36928u);
  EXPECT_EQ(offsetof(GpuLedger, exported), 41024u);
}

TEST(Pages, Fault21_SlotsRunOutAndComeBack) {
  LedgerPage* ledger = nullptr;
  const Fd fd{CreateLedger(1, &ledger)};
  for (uint32_t i = 0; i < kMaxSlots; ++i) ASSERT_EQ(TakeSlot(*ledger, i, 1, i + 1), static_cast<int>(i));
  EXPECT_EQ(TakeSlot(*ledger, 1, 1, 9999), -1);
  EXPECT_EQ(ledger->slots_used.load(), kMaxSlots);
  ledger->slots[17].generation = 0;
  EXPECT_EQ(TakeSlot(*ledger, 1, 1, 9999), 17);
  Unmap(ledger);
}

TEST(Futex, WorksOnAReadOnlyMapping) {
  LimitsPage* written = nullptr;
  const Fd fd{CreateLimits(kId, 1, 1, &written)};
  const LimitsPage* seen = nullptr;
  ASSERT_EQ(MapLimits(fd.value, &seen), PageError::kNone);
  EXPECT_EQ(FutexWaitUntil(seen->gpu[0].window_sequence, 1, UINT64_MAX), EAGAIN);
  EXPECT_EQ(FutexWaitUntil(seen->gpu[0].window_sequence, 0, MonotonicNs() + 1000), ETIMEDOUT);
  EXPECT_EQ(FutexWake(seen->gpu[0].window_sequence, INT32_MAX), 0);
  Unmap(seen);
  Unmap(written);
}

}  // namespace
}  // namespace mete::ledger
