// Cuts device memory into allocations as a driver does: it reserves whole 2 MiB chunks from the GPU and puts small
// allocations together into one. The engine sees chunks only.
// Thread rule: any thread, one mutex per heap. Errors: CUresult, and nothing is held after one.
#ifndef METE_EMULATOR_CUDA_HEAP_H_
#define METE_EMULATOR_CUDA_HEAP_H_

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "emulator/cuda/content.h"
#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {

struct Context;

class Heap {
 public:
  // keep: chunks that become empty stay reserved until Trim, as in a memory pool.
  Heap(Context* context, bool keep) : context_(context), keep_(keep) {}
  ~Heap();

  // low: below 4 GiB.
  CUresult Allocate(uint64_t bytes, uint64_t* address, bool low = false);
  // The size it was allocated with; 0: not one of this heap's.
  uint64_t Free(uint64_t address);
  // Gives empty chunks back until at most `keep_bytes` stay reserved.
  void Trim(uint64_t keep_bytes);
  // Gives everything back; the engine is not told when its context is already gone.
  void Clear(bool tell_engine);

  uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t reserved_high() const { return reserved_high_.load(std::memory_order_relaxed); }
  uint64_t used_high() const { return used_high_.load(std::memory_order_relaxed); }
  void ResetReservedHigh() { reserved_high_.store(reserved()); }
  void ResetUsedHigh() { used_high_.store(used()); }
  void SetLimit(uint64_t bytes) { limit_ = bytes; }
  // Devices that may use the memory besides its own, as bits; must outlive the heap.
  void SetGranted(const std::atomic<uint64_t>* devices) { granted_ = devices; }

 private:
  struct Chunk {  // sub-allocated
    std::unique_ptr<Region> region;
    std::map<uint32_t, uint32_t> free;  // slot → slots
    uint32_t free_slots = kSlotsPerChunk;
    bool low = false;
  };
  CUresult NewRegion(uint64_t bytes, bool low, std::unique_ptr<Region>* region);
  void DropRegion(std::unique_ptr<Region> region, bool tell_engine);
  CUresult Small(uint64_t bytes, uint64_t* address, bool low);
  CUresult Large(uint64_t bytes, uint64_t* address, bool low);
  bool FromChunk(Chunk* chunk, uint64_t bytes, uint64_t* address);
  void Used(int64_t change);

  Context* const context_;
  const bool keep_;
  uint64_t limit_ = 0;  // 0: none
  const std::atomic<uint64_t>* granted_ = nullptr;
  std::mutex mutex_;
  std::map<uint64_t, Chunk> chunks_;                         // by base
  std::map<uint64_t, std::unique_ptr<Region>> large_;        // by base
  std::multimap<uint64_t, std::unique_ptr<Region>> cached_;  // free large ones of a pool, by bytes
  uint64_t last_chunk_ = 0;
  std::atomic<uint64_t> reserved_{0}, used_{0}, reserved_high_{0}, used_high_{0};
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_HEAP_H_
