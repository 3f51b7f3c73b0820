// What all blocks of one Run share: the module's addresses, the path to device memory with its cached translations, the
// counters that become the cost, and the first fault. One thread uses it.
#ifndef METE_EMULATOR_PTX_RUN_STATE_H_
#define METE_EMULATOR_PTX_RUN_STATE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/ptx/program.h"
#include "emulator/ptx/ptx.h"

namespace mete::emulator::ptx {

// Distinct 128-byte lines touched, exactly, up to kMaximumRegions regions of 8 KiB; beyond that scaled by accesses.
class LineSet {
 public:
  void Touch(uint64_t address) {
    ++touches_;
    const uint64_t region = address >> 13;
    if (region != last_region_) Find(region);
    if (last_bits_ == nullptr) return;
    const uint64_t bit = uint64_t{1} << (address >> 7 & 63);
    distinct_ += (*last_bits_ & bit) == 0 ? 1 : 0;
    *last_bits_ |= bit;
  }
  double DistinctBytes() const;
  uint64_t Distinct() const { return distinct_; }     // lines
  void AddUnseen(double lines) { unseen_ += lines; }  // what turns of a loop that did not run would have touched

 private:
  static constexpr size_t kMaximumRegions = size_t{1} << 20;
  struct Region {
    uint64_t key = ~uint64_t{0}, bits = 0;
  };
  void Find(uint64_t region);
  void Grow();
  std::vector<Region> table_;
  size_t used_ = 0;
  uint64_t last_region_ = ~uint64_t{0};
  uint64_t* last_bits_ = nullptr;
  uint64_t touches_ = 0, untracked_ = 0, distinct_ = 0;
  double unseen_ = 0;
};

struct RunState {
  RunState(const Function& f, const Launch& l, Memory& m) : function(&f), launch(&l), memory(&m) {}

  const Function* function;
  const Launch* launch;
  Memory* memory;
  const std::vector<Function>* functions = nullptr;
  const std::vector<uint64_t>* addresses = nullptr;  // of the module's globals
  const bool volatile* cancelled = nullptr;

  uint64_t classes[kInstructionClasses] = {};  // warp instructions
  uint64_t sectors = 0;                        // 32-byte pieces of global memory moved
  LineSet lines;
  bool skipped = false;      // turns of a loop have been
  bool extrapolate = false;  // counted loops need not run whole: a sample

  FaultKind fault = FaultKind::kNone;
  uint64_t fault_address = 0;
  std::string fault_detail;

  // Records the first fault.
  void Fail(FaultKind kind, uint64_t address, std::string detail);

  // Host pointer to device memory or null. Translations are kept for the life of the run, page by page where a whole
  // page belongs to one allocation; `bypass` asks Memory itself, for words that other parties change meanwhile.
  uint8_t* Translate(uint64_t address, uint32_t size, bool write, bool bypass) {
    const uint64_t page = address >> kPageShift;
    Entry& entry = (write ? writes_ : reads_)[page % kEntries];
    if (!bypass && entry.page_and_one == page + 1 && entry.epoch >= (write ? 0 : epoch_) &&
        ((address + size - 1) >> kPageShift) == page) {
      return entry.host + (address & (kPageBytes - 1));
    }
    return Miss(address, size, write, bypass);
  }
  static constexpr uint32_t kPageShift = 12;
  static constexpr uint64_t kPageBytes = uint64_t{1} << kPageShift;

 private:
  struct Entry {
    uint64_t page_and_one = 0;  // 0: nothing, so that a fresh table is zeroes
    uint64_t epoch = 0;
    uint8_t* host = nullptr;
  };
  static constexpr size_t kEntries = 512;
  uint8_t* Miss(uint64_t address, uint32_t size, bool write, bool bypass);
  std::array<Entry, kEntries> reads_{}, writes_{};
  uint64_t epoch_ = 0;  // of reads: what was remembered before the last new place for writes is not used
};

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_RUN_STATE_H_
