// Lists that a program hands over together with their length, and places together with their size: whether they can be
// there at all. What cannot is refused before anything is allocated, read or written by that number.
// Up to a page is taken on trust: a stray pointer to something small faults its caller, as with a real driver.
// Owns nothing. Any thread; no errors but `false`; bytes.
#ifndef METE_EMULATOR_CUDA_LIST_H_
#define METE_EMULATOR_CUDA_LIST_H_

#include <cstdint>

namespace mete::emulator::cuda {

constexpr uint64_t kMostListed = 1 << 20;  // no list that means anything is longer

// Whether [address, address + bytes) is memory of this process that can be read; of very much memory only that it is
// mapped, and readable at both ends.
bool IsMapped(const void* address, uint64_t bytes);

// A list that a call may go through: none for no elements, else one of so many.
template <typename T>
bool IsList(const T* list, uint64_t count) {
  if (count == 0) return true;
  return list != nullptr && count <= kMostListed && IsMapped(list, count * sizeof(T));
}

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_LIST_H_
