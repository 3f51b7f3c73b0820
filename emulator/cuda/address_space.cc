#include "emulator/cuda/address_space.h"

#include <sys/mman.h>

#include <algorithm>

namespace mete::emulator::cuda {
namespace {

constexpr uint64_t kArenaBytes = 64ull << 30;
constexpr uint64_t kFourGiB = 4ull << 30;

void* Reserve(uint64_t address, uint64_t bytes, int extra_flags) {
  void* at = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra_flags, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_NOHUGEPAGE);  // content is counted in granules, so a touch must not bring in more
  madvise(at, bytes, MADV_DONTFORK);    // a child has no device memory, as with a real driver
  madvise(at, bytes, MADV_DONTDUMP);
  return at;
}

}  // namespace

void AddressSpace::Insert(uint64_t address, uint64_t bytes) {
  auto& ranges = address < kFourGiB ? low_ : free_;
  auto next = ranges.lower_bound(address);
  if (next != ranges.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == address) {
      address = before->first;
      bytes += before->second;
      ranges.erase(before);
    }
  }
  if (next != ranges.end() && address + bytes == next->first) {
    bytes += next->second;
    ranges.erase(next);
  }
  ranges[address] = bytes;
}

bool AddressSpace::Grow(uint64_t bytes) {
  const uint64_t arena = std::max(kArenaBytes, RoundUp(bytes + kChunkBytes, kChunkBytes));
  void* at = Reserve(0, arena, 0);
  uint64_t got = arena;
  if (at == nullptr) {  // a limited address space: only what is needed
    got = RoundUp(bytes + kChunkBytes, kChunkBytes);
    at = Reserve(0, got, 0);
    if (at == nullptr) return false;
  }
  const uint64_t begin = RoundUp(reinterpret_cast<uint64_t>(at), kChunkBytes);
  const uint64_t end = (reinterpret_cast<uint64_t>(at) + got) / kChunkBytes * kChunkBytes;
  Insert(begin, end - begin);
  return true;
}

uint64_t AddressSpace::Take(uint64_t bytes, uint64_t alignment) {
  std::lock_guard lock(mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const uint64_t begin = RoundUp(it->first, alignment);
      const uint64_t end = it->first + it->second;
      if (begin < it->first || begin > end || end - begin < bytes) continue;
      const uint64_t first = it->first;
      free_.erase(it);
      if (begin > first) free_[first] = begin - first;
      if (begin + bytes < end) free_[begin + bytes] = end - begin - bytes;
      return begin;
    }
    if (!Grow(bytes + alignment)) return 0;
  }
  return 0;
}

uint64_t AddressSpace::TakeLow(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto it = low_.begin(); it != low_.end(); ++it) {
    if (it->second < bytes) continue;
    const uint64_t begin = it->first, rest = it->second - bytes;
    low_.erase(it);
    if (rest != 0) low_[begin + bytes] = rest;
    return begin;
  }
  for (; low_next_ + bytes <= kFourGiB; low_next_ += kChunkBytes) {
    void* at = Reserve(low_next_, bytes, MAP_FIXED_NOREPLACE);
    if (at == nullptr) continue;
    if (reinterpret_cast<uint64_t>(at) != low_next_) {  // a kernel that does not know the flag took it as a hint
      munmap(at, bytes);
      continue;
    }
    low_next_ += bytes;
    return reinterpret_cast<uint64_t>(at);
  }
  return 0;
}

uint64_t AddressSpace::TakeAt(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto it = free_.upper_bound(address);
  if (it == free_.begin()) return 0;
  --it;
  const uint64_t begin = it->first, end = begin + it->second;
  if (address % kChunkBytes != 0 || end < address || end - address < bytes) return 0;
  free_.erase(it);
  if (begin < address) free_[begin] = address - begin;
  if (address + bytes < end) free_[address + bytes] = end - address - bytes;
  return address;
}

void AddressSpace::Give(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  Insert(address, bytes);
}

}  // namespace mete::emulator::cuda
