// A GPU's accounting: what each process that used it held and took, kept after its end. Off until it is turned on;
// processes that were there before are not counted. Not thread-safe. Times: ns of the engine's clock.
#ifndef METE_EMULATOR_ENGINE_ACCOUNTING_H_
#define METE_EMULATOR_ENGINE_ACCOUNTING_H_

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "emulator/engine/gpu_state.h"

namespace mete::emulator {

class Accounting {
 public:
  void Enable(bool on) { enabled_ = on; }
  void Clear() { ended_.clear(); }

  // Contexts of a process, and its memory as it changes. `wall_us`: the time of day now. `held`: memory that it has
  // without a context.
  void ContextBegan(uint32_t pid, uint64_t now_ns, uint64_t wall_us, uint64_t held = 0);
  void MemoryChanged(uint32_t pid, int64_t bytes);
  void Used(uint32_t pid, uint64_t busy_ns, uint64_t memory_busy_ns);  // GPU time of a context that is gone
  void ContextEnded(uint32_t pid, uint64_t now_ns);

  // Ended ones first, oldest first. `present`: GPU time of contexts that still are, by process.
  std::vector<AccountingRecord> Records(uint64_t now_ns, const std::vector<ProcessInfo>& present) const;

 private:
  struct Live {
    bool counted = false;
    uint32_t contexts = 0;
    uint64_t memory = 0, most = 0, busy_ns = 0, memory_busy_ns = 0, began_ns = 0, began_us = 0;
  };
  static AccountingRecord Record(uint32_t pid, const Live& live, uint64_t now_ns);

  bool enabled_ = false;
  std::map<uint32_t, Live> live_;
  std::deque<AccountingRecord> ended_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_ACCOUNTING_H_
