#include "emulator/ptx/run_state.h"

#include <utility>

namespace mete::emulator::ptx {

double LineSet::DistinctBytes() const {
  const uint64_t tracked = touches_ - untracked_;
  const double scale = tracked == 0 ? 1.0 : static_cast<double>(touches_) / static_cast<double>(tracked);
  return (static_cast<double>(distinct_) + unseen_) * 128.0 * scale;
}

void LineSet::Grow() {
  std::vector<Region> old = std::move(table_);
  table_.assign(old.empty() ? 64 : old.size() * 2, Region());
  for (const Region& region : old) {
    if (region.key == ~uint64_t{0}) continue;
    size_t i = (region.key * 0x9e3779b97f4a7c15ULL) >> 20 & (table_.size() - 1);
    while (table_[i].key != ~uint64_t{0}) i = (i + 1) & (table_.size() - 1);
    table_[i] = region;
  }
}

void LineSet::Find(uint64_t region) {
  if (used_ * 2 >= table_.size() && used_ < kMaximumRegions) Grow();
  size_t i = (region * 0x9e3779b97f4a7c15ULL) >> 20 & (table_.size() - 1);
  while (table_[i].key != ~uint64_t{0} && table_[i].key != region) i = (i + 1) & (table_.size() - 1);
  if (table_[i].key != region) {
    if (used_ >= kMaximumRegions) {
      ++untracked_;
      last_region_ = ~uint64_t{0};
      last_bits_ = nullptr;
      return;
    }
    table_[i].key = region;
    ++used_;
  }
  last_region_ = region;
  last_bits_ = &table_[i].bits;
}

void RunState::Fail(FaultKind kind, uint64_t address, std::string detail) {
  if (fault != FaultKind::kNone) return;
  fault = kind;
  fault_address = address;
  fault_detail = std::move(detail);
}

uint8_t* RunState::Miss(uint64_t address, uint32_t size, bool write, bool bypass) {
  if (address + size < address) return nullptr;
  // Making room for a write may give the page new backing: what reads remembered is then no longer the memory.
  if (write) ++epoch_;
  const uint64_t page = address >> kPageShift;
  if (!bypass && ((address + size - 1) >> kPageShift) == page) {
    if (uint8_t* host = memory->Translate(page << kPageShift, kPageBytes, write)) {
      (write ? writes_ : reads_)[page % kEntries] = Entry{page + 1, epoch_, host};
      return host + (address & (kPageBytes - 1));
    }
  }
  return memory->Translate(address, size, write);
}

}  // namespace mete::emulator::ptx
