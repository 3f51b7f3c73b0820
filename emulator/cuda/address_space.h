// Device addresses: host virtual addresses that this process reserves without access, so that a device pointer never
// collides with a host pointer and costs nothing until content is kept there.
// Units: bytes, always multiples of kChunkBytes. Any thread. Never gives address space back to the kernel.
#ifndef METE_EMULATOR_CUDA_ADDRESS_SPACE_H_
#define METE_EMULATOR_CUDA_ADDRESS_SPACE_H_

#include <cstdint>
#include <map>
#include <mutex>

namespace mete::emulator::cuda {

constexpr uint64_t kChunkBytes = 2ull << 20;     // what the driver reserves device memory in
constexpr uint64_t kGranuleBytes = 64ull << 10;  // what content is kept in

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

class AddressSpace {
 public:
  // 0: the process has no address space left. alignment: a power of two, at least kChunkBytes.
  uint64_t Take(uint64_t bytes, uint64_t alignment = kChunkBytes);
  // Below 4 GiB, for the 32-bit pointers of the oldest functions.
  uint64_t TakeLow(uint64_t bytes);
  // At `address` if that is free; else 0.
  uint64_t TakeAt(uint64_t address, uint64_t bytes);
  void Give(uint64_t address, uint64_t bytes);

 private:
  bool Grow(uint64_t bytes);
  void Insert(uint64_t address, uint64_t bytes);

  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // address → bytes, coalesced
  std::map<uint64_t, uint64_t> low_;   // same, below 4 GiB
  uint64_t low_next_ = kChunkBytes;
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_ADDRESS_SPACE_H_
