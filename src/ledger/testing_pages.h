// Two pages in memory for tests: one share with one GPU, and views of its slots. Not linked into anything that ships.
#ifndef METE_LEDGER_TESTING_PAGES_H_
#define METE_LEDGER_TESTING_PAGES_H_

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "ledger/pages.h"

namespace mete::ledger::testing {

// Anonymous shared memory, so that forked children see the same pages.
class Pages {
 public:
  explicit Pages(uint32_t gpus = 1) {
    const uint8_t id[16] = {1, 2, 3};
    limits = new (Map(sizeof(LimitsPage))) LimitsPage;
    ledger = new (Map(sizeof(LedgerPage))) LedgerPage;
    InitLimits(*limits, id, gpus, 1);
    InitLedger(*ledger, gpus);
    for (uint32_t i = 0; i < gpus; ++i) {
      limits->gpu[i].memory_quota = kNoQuota;
      limits->gpu[i].share = kFullShare;
      limits->gpu[i].weight = 1;
      limits->gpu[i].flags = kTracked;
      limits->gpu[i].window_until_ns = kWindowOpen;
    }
  }
  ~Pages() {
    munmap(limits, sizeof(LimitsPage));
    munmap(ledger, sizeof(LedgerPage));
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // A new process of the share.
  View Join(uint32_t gpu = 0) {
    const int slot = TakeSlot(*ledger, 100, 1, ++generation_);
    return View{limits, ledger, gpu, static_cast<uint32_t>(slot)};
  }
  void SetCompute(ComputeMode mode, uint32_t share, uint32_t weight = 1) {
    limits->gpu[0].mode = static_cast<uint32_t>(mode);
    limits->gpu[0].share = share;
    limits->gpu[0].weight = weight;
  }

  LimitsPage* limits;
  LedgerPage* ledger;

 private:
  static void* Map(size_t bytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  uint32_t generation_ = 0;
};

}  // namespace mete::ledger::testing

#endif  // METE_LEDGER_TESTING_PAGES_H_
