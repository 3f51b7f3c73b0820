#include "emulator/cuda/heap.h"

#include <algorithm>

#include "emulator/cuda/context.h"

namespace mete::emulator::cuda {

Heap::~Heap() { Clear(false); }

void Heap::Used(int64_t change) {
  const uint64_t now = used_.fetch_add(change, std::memory_order_relaxed) + change;
  if (change > 0 && now > used_high_.load(std::memory_order_relaxed)) used_high_.store(now, std::memory_order_relaxed);
}

CUresult Heap::NewRegion(uint64_t bytes, bool low, std::unique_ptr<Region>* out) {
  if (limit_ != 0 && reserved() + bytes > limit_) return CUDA_ERROR_OUT_OF_MEMORY;
  Driver* driver = Driver::Get();
  const Result result = driver->client().ReserveMemory(context_->engine, bytes);
  if (result != Result::kOk) return context_->Explain(result);
  const uint64_t base = low ? driver->address_space().TakeLow(bytes) : driver->address_space().Take(bytes);
  if (base == 0) {
    driver->client().ReturnMemory(context_->engine, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto region = std::make_unique<Region>();
  region->base = base;
  region->bytes = bytes;
  region->device = driver->OrdinalOf(context_->device);
  region->granted = granted_;
  region->own_blocks = std::make_unique<Block[]>(bytes / kChunkBytes);
  region->blocks = region->own_blocks.get();
  if (const uint32_t found = driver->client().FoundWord(context_->device->gpu)) {
    for (uint64_t i = 0; i < bytes / kChunkBytes; ++i) region->blocks[i].fill.store(found, std::memory_order_relaxed);
  }
  reserved_.fetch_add(bytes, std::memory_order_relaxed);
  if (reserved() > reserved_high()) reserved_high_.store(reserved(), std::memory_order_relaxed);
  *out = std::move(region);
  return CUDA_SUCCESS;
}

void Heap::DropRegion(std::unique_ptr<Region> region, bool tell_engine) {
  Driver* driver = Driver::Get();
  if (driver == nullptr) return;
  const uint64_t shared = region->memory;
  driver->client().LeaveWord(context_->device->gpu, region->blocks[0].fill.load(std::memory_order_relaxed));
  driver->content().Remove(region.get());
  driver->address_space().Give(region->base, region->bytes);
  if (shared != 0) {
    driver->client().DropPhysical(shared);  // it does not go with the context
  } else if (tell_engine) {
    driver->client().ReturnMemory(context_->engine, region->bytes);
  }
  reserved_.fetch_sub(region->bytes, std::memory_order_relaxed);
}

bool Heap::FromChunk(Chunk* chunk, uint64_t bytes, uint64_t* address) {
  const uint32_t need = RoundUp(bytes, kSlotBytes) / kSlotBytes;
  if (chunk->free_slots < need) return false;
  for (auto it = chunk->free.begin(); it != chunk->free.end(); ++it) {
    if (it->second < need) continue;
    const uint32_t slot = it->first, rest = it->second - need;
    chunk->free.erase(it);
    if (rest != 0) chunk->free[slot + need] = rest;
    chunk->free_slots -= need;
    Slots& slots = *chunk->region->slots;
    slots.bytes[slot].store(bytes, std::memory_order_relaxed);
    for (uint32_t i = slot; i < slot + need; ++i) slots.first[i].store(slot + 1, std::memory_order_relaxed);
    *address = chunk->region->base + slot * kSlotBytes;
    return true;
  }
  return false;
}

CUresult Heap::Small(uint64_t bytes, uint64_t* address, bool low) {
  auto last = chunks_.find(last_chunk_);
  if (last != chunks_.end() && last->second.low == low && FromChunk(&last->second, bytes, address)) return CUDA_SUCCESS;
  for (auto& [base, chunk] : chunks_) {
    if (chunk.low != low || !FromChunk(&chunk, bytes, address)) continue;
    last_chunk_ = base;
    return CUDA_SUCCESS;
  }
  Chunk chunk;
  chunk.low = low;
  if (CUresult error = NewRegion(kChunkBytes, low, &chunk.region)) return error;
  chunk.region->slots = std::make_unique<Slots>();
  chunk.free[0] = kSlotsPerChunk;
  const uint64_t base = chunk.region->base;
  FromChunk(&chunk, bytes, address);
  Driver::Get()->content().Add(chunk.region.get());
  chunks_.emplace(base, std::move(chunk));
  last_chunk_ = base;
  return CUDA_SUCCESS;
}

CUresult Heap::Large(uint64_t bytes, uint64_t* address, bool low) {
  const uint64_t rounded = RoundUp(bytes, kChunkBytes);
  std::unique_ptr<Region> region;
  if (keep_) {
    auto it = cached_.lower_bound(rounded);
    if (it != cached_.end() && it->first <= rounded + rounded / 4) {
      region = std::move(it->second);
      cached_.erase(it);
    }
  }
  if (region == nullptr) {
    CUresult error = NewRegion(rounded, low, &region);
    if (error == CUDA_ERROR_OUT_OF_MEMORY && !cached_.empty()) {
      for (auto& [size, cached] : cached_) DropRegion(std::move(cached), true);
      cached_.clear();
      error = NewRegion(rounded, low, &region);
    }
    if (error != CUDA_SUCCESS) return error;
  }
  region->end.store(region->base + bytes, std::memory_order_relaxed);
  Driver::Get()->content().Add(region.get());
  *address = region->base;
  large_[region->base] = std::move(region);
  return CUDA_SUCCESS;
}

CUresult Heap::Allocate(uint64_t bytes, uint64_t* address, bool low) {
  if (bytes > 1ull << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(mutex_);
  const CUresult error = bytes < kChunkBytes ? Small(bytes, address, low) : Large(bytes, address, low);
  if (error == CUDA_SUCCESS) Used(static_cast<int64_t>(bytes));
  return error;
}

uint64_t Heap::Free(uint64_t address) {
  std::lock_guard lock(mutex_);
  if (auto it = large_.find(address); it != large_.end()) {
    std::unique_ptr<Region> region = std::move(it->second);
    const uint64_t bytes = region->end.load(std::memory_order_relaxed) - region->base;
    large_.erase(it);
    Used(-static_cast<int64_t>(bytes));
    if (keep_ && region->file == nullptr) {
      region->end.store(region->base, std::memory_order_relaxed);  // an access to it is illegal now
      cached_.emplace(region->bytes, std::move(region));
    } else {
      DropRegion(std::move(region), true);
    }
    return bytes;
  }
  auto it = chunks_.find(address / kChunkBytes * kChunkBytes);
  if (it == chunks_.end()) return 0;
  Chunk& chunk = it->second;
  const uint32_t slot = (address - it->first) / kSlotBytes;
  Slots& slots = *chunk.region->slots;
  if (address % kSlotBytes != 0 || slots.first[slot].load(std::memory_order_relaxed) != slot + 1) return 0;
  const uint64_t bytes = slots.bytes[slot].load(std::memory_order_relaxed);
  uint32_t count = RoundUp(bytes, kSlotBytes) / kSlotBytes;
  for (uint32_t i = slot; i < slot + count; ++i) slots.first[i].store(0, std::memory_order_relaxed);
  chunk.free_slots += count;
  uint32_t begin = slot;
  auto next = chunk.free.lower_bound(slot);
  if (next != chunk.free.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      count += before->second;
      chunk.free.erase(before);
    }
  }
  if (next != chunk.free.end() && begin + count == next->first) {
    count += next->second;
    chunk.free.erase(next);
  }
  chunk.free[begin] = count;
  Used(-static_cast<int64_t>(bytes));
  if (chunk.free_slots == kSlotsPerChunk && (!keep_ || chunk.region->file != nullptr)) {
    std::unique_ptr<Region> region = std::move(chunk.region);
    chunks_.erase(it);
    DropRegion(std::move(region), true);
  }
  return bytes;
}

void Heap::Trim(uint64_t keep_bytes) {
  std::lock_guard lock(mutex_);
  while (reserved() > keep_bytes && !cached_.empty()) {
    auto it = std::prev(cached_.end());
    DropRegion(std::move(it->second), true);
    cached_.erase(it);
  }
  for (auto it = chunks_.begin(); it != chunks_.end() && reserved() > keep_bytes;) {
    if (it->second.free_slots != kSlotsPerChunk) {
      ++it;
      continue;
    }
    DropRegion(std::move(it->second.region), true);
    it = chunks_.erase(it);
  }
}

void Heap::Clear(bool tell_engine) {
  std::lock_guard lock(mutex_);
  for (auto& [base, region] : large_) DropRegion(std::move(region), tell_engine);
  for (auto& [size, region] : cached_) DropRegion(std::move(region), tell_engine);
  for (auto& [base, chunk] : chunks_) DropRegion(std::move(chunk.region), tell_engine);
  large_.clear();
  cached_.clear();
  chunks_.clear();
  used_.store(0);
}

}  // namespace mete::emulator::cuda
