#include "emulator/cuda/content.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/cuda/share_file.h"

namespace mete::emulator::cuda {
namespace {

alignas(4096) const uint8_t kZeroes[4096] = {};
thread_local uint8_t g_scratch[4096];  // takes writes to memory that keeps no content

uint8_t* Pointer(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

}  // namespace

Region* Content::Find(uint64_t address) const {
  if (address >> 47 != 0) return nullptr;
  Leaf* leaf = top_[address >> kLeafShift].load(std::memory_order_acquire);
  return leaf == nullptr ? nullptr : leaf->chunks[(address >> 21) & 0x1fff].load(std::memory_order_acquire);
}

void Content::Add(Region* region) {
  for (uint64_t at = region->base; at < region->base + region->bytes; at += kChunkBytes) {
    std::atomic<Leaf*>& top = top_[at >> kLeafShift];
    Leaf* leaf = top.load(std::memory_order_acquire);
    if (leaf == nullptr) {
      auto* fresh = new Leaf;
      if (top.compare_exchange_strong(leaf, fresh, std::memory_order_acq_rel)) {
        leaf = fresh;
      } else {
        delete fresh;
      }
    }
    leaf->chunks[(at >> 21) & 0x1fff].store(region, std::memory_order_release);
  }
}

void Content::Remove(Region* region) {
  for (uint64_t at = region->base; at < region->base + region->bytes; at += kChunkBytes) {
    top_[at >> kLeafShift]
        .load(std::memory_order_acquire)
        ->chunks[(at >> 21) & 0x1fff]
        .store(nullptr, std::memory_order_release);
  }
  if (region->own_blocks == nullptr) return;
  if (region->file != nullptr) {
    CloseAddresses(region->base, region->bytes);
    ForgetBlocks(region->own_blocks.get(), region->bytes / kChunkBytes);
    for (uint64_t i = 0; i < region->bytes / kChunkBytes; ++i) region->own_blocks[i].open.store(0);
    region->file = nullptr;
    region->frozen = false;
    return;
  }
  Forget(region, region->base, region->bytes);
  std::lock_guard lock(mutex_);
  for (uint64_t i = 0; i < region->bytes / kChunkBytes; ++i) {
    if (region->own_blocks[i].open.load(std::memory_order_relaxed) == 0) continue;
    mprotect(Pointer(region->base + i * kChunkBytes), kChunkBytes, PROT_NONE);
    region->own_blocks[i].open.store(0, std::memory_order_relaxed);  // the region may come back
  }
}

void Content::AddHost(uint64_t address, uint64_t bytes) {
  std::unique_lock lock(host_mutex_);
  host_[address] = bytes;
}

void Content::RemoveHost(uint64_t address) {
  std::unique_lock lock(host_mutex_);
  host_.erase(address);
}

bool Content::HostContains(uint64_t address, uint64_t bytes) {
  std::shared_lock lock(host_mutex_);
  auto it = host_.upper_bound(address);
  if (it == host_.begin()) return false;
  --it;
  return address - it->first <= it->second && it->second - (address - it->first) >= bytes;
}

bool Content::InBounds(const Region& region, uint64_t address, uint64_t size) const {
  if (region.slots == nullptr) {
    const uint64_t end = region.end.load(std::memory_order_relaxed);
    return address < end && end - address >= size;
  }
  const uint32_t slot = (address - region.base) / kSlotBytes;
  const uint32_t first = region.slots->first[slot].load(std::memory_order_relaxed);
  if (first == 0) return false;
  const uint64_t begin = region.base + (first - 1) * kSlotBytes;
  const uint64_t bytes = region.slots->bytes[first - 1].load(std::memory_order_relaxed);
  return address - begin < bytes && bytes - (address - begin) >= size;
}

bool Content::Allowed(const Region& region, Viewer viewer, bool write) const {
  const uint64_t users = (write ? region.writers : region.readers).load(std::memory_order_relaxed);
  if ((users & viewer.self) == 0) return false;
  if (region.shared || region.device < 0 || (viewer.reach >> region.device & 1) != 0) return true;
  return region.granted != nullptr && (region.granted->load(std::memory_order_relaxed) & viewer.self) != 0;
}

uint8_t* Content::Translate(Viewer viewer, uint64_t address, size_t size, bool write) {
  Region* region = Find(address);
  if (region == nullptr) return HostContains(address, size) ? Pointer(address) : nullptr;
  if (!Allowed(*region, viewer, write)) return nullptr;
  if (!InBounds(*region, address, size)) {
    // Two mappings that touch are one memory to a kernel.
    if (!region->shared || !Contains(address, size, write)) return nullptr;
  }
  if (region->blocks == nullptr) return Pointer(address);
  Block* block = &region->blocks[(address - region->base) / kChunkBytes];
  const uint32_t bit = 1u << ((address % kChunkBytes) / kGranuleBytes);
  const bool one = (address % kGranuleBytes) + size <= kGranuleBytes;
  if (one && (block->backed.load(std::memory_order_acquire) & bit) != 0) return Pointer(address);
  if (size > sizeof kZeroes) return nullptr;
  bool backed = true;
  for (uint64_t at = address; at < address + size; at = RoundUp(at + 1, kGranuleBytes)) {
    Piece piece;
    if (!PieceAt(at, address + size, &piece)) return nullptr;
    if ((piece.block->backed.load(std::memory_order_acquire) & piece.bit) != 0) continue;
    if ((piece.block->dropped.load(std::memory_order_relaxed) & piece.bit) != 0) {
      if (!write) counters_.undefined_reads.fetch_add(1, std::memory_order_relaxed);
      backed = false;
    } else if (!write && one && piece.block->fill.load(std::memory_order_acquire) == 0) {
      return const_cast<uint8_t*>(kZeroes);
    } else if (!Back(*piece.region, piece.block, at, true)) {
      counters_.dropped_bytes.fetch_add(size, std::memory_order_relaxed);
      backed = false;
    }
  }
  if (backed) return Pointer(address);
  return write ? g_scratch : const_cast<uint8_t*>(kZeroes);
}

bool Content::Contains(uint64_t address, uint64_t bytes, bool write) {
  if (address + bytes < address) return false;
  if (bytes == 0) return true;
  if (Find(address) == nullptr) return HostContains(address, bytes);
  const uint64_t end = address + bytes;
  while (address < end) {
    Region* region = Find(address);
    if (region == nullptr) return false;
    if (!Allowed(*region, {}, write)) return false;
    const uint64_t stop = std::min(end, region->base + region->bytes);
    if (!InBounds(*region, address, stop - address)) return false;
    address = stop;
  }
  return true;
}

bool Content::PieceAt(uint64_t address, uint64_t end, Piece* piece) const {
  Region* region = Find(address);
  if (region == nullptr) return false;
  const uint64_t granule = address / kGranuleBytes * kGranuleBytes;
  piece->region = region;
  piece->block = region->blocks == nullptr ? nullptr : &region->blocks[(address - region->base) / kChunkBytes];
  piece->bit = 1u << ((address % kChunkBytes) / kGranuleBytes);
  piece->bytes = std::min(end, granule + kGranuleBytes) - address;
  piece->whole = piece->bytes == kGranuleBytes;
  return true;
}

Block* Content::WholeChunk(uint64_t address, uint64_t end, Region** region) const {
  if (address % kChunkBytes != 0 || end - address < kChunkBytes) return nullptr;
  *region = Find(address);
  if (*region == nullptr || (*region)->blocks == nullptr) return nullptr;
  return &(*region)->blocks[(address - (*region)->base) / kChunkBytes];
}

bool Content::TakeBacking(uint64_t bytes) {
  if (spare_backing_ < bytes) {
    if (client_ == nullptr || !client_->TakeBacking(kChunkBytes)) return false;
    spare_backing_ += kChunkBytes;
  }
  spare_backing_ -= bytes;
  counters_.backed_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

void Content::GiveBacking(uint64_t bytes) {
  counters_.backed_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  spare_backing_ += bytes;
  const uint64_t surplus = spare_backing_ / kChunkBytes * kChunkBytes;
  if (surplus >= 2 * kChunkBytes && client_ != nullptr) {
    client_->GiveBacking(surplus - kChunkBytes);
    spare_backing_ -= surplus - kChunkBytes;
  }
}

bool Content::Back(Region& region, Block* block, uint64_t address, bool paint) {
  const uint64_t chunk = address / kChunkBytes * kChunkBytes;
  const uint64_t granule = address / kGranuleBytes * kGranuleBytes;
  const uint32_t bit = 1u << ((granule - chunk) / kGranuleBytes);
  std::lock_guard lock(mutex_);
  if ((block->backed.load(std::memory_order_relaxed) & bit) != 0) return true;
  if (region.frozen) return false;
  if (!TakeBacking(kGranuleBytes)) {
    block->dropped.fetch_or(bit, std::memory_order_relaxed);
    return false;
  }
  if (!region.shared && block->open.load(std::memory_order_relaxed) == 0) {
    if (mprotect(Pointer(chunk), kChunkBytes, PROT_READ | PROT_WRITE) != 0) {  // too many mappings
      GiveBacking(kGranuleBytes);
      block->dropped.fetch_or(bit, std::memory_order_relaxed);
      return false;
    }
    block->open.store(1, std::memory_order_relaxed);
  }
  const uint32_t fill = block->fill.load(std::memory_order_relaxed);
  // Fresh pages are zero.
  if (paint && fill != 0) Paint(granule, Pointer(granule), fill, kGranuleBytes);
  block->dropped.fetch_and(~bit, std::memory_order_relaxed);
  block->backed.fetch_or(bit, std::memory_order_release);
  return true;
}

void Content::Unback(Region& region, Block* block, uint64_t chunk, uint32_t granules) {
  const uint32_t had = block->backed.load(std::memory_order_relaxed) & granules;
  if (had == 0) return;
  block->backed.fetch_and(~had, std::memory_order_relaxed);
  const int advice = region.shared ? MADV_REMOVE : MADV_DONTNEED;
  if (had == ~0u) {
    madvise(Pointer(chunk), kChunkBytes, advice);
  } else {
    for (uint32_t i = 0; i < kGranulesPerChunk; ++i) {
      if ((had >> i & 1) != 0) madvise(Pointer(chunk + i * kGranuleBytes), kGranuleBytes, advice);
    }
  }
  GiveBacking(static_cast<uint64_t>(std::popcount(had)) * kGranuleBytes);
}

void Content::SetFill(Region& region, uint64_t chunk, Block* block, uint32_t pattern) {
  std::lock_guard lock(mutex_);
  if (region.frozen) {
    for (uint32_t i = 0; i < kGranulesPerChunk; ++i) {
      const uint64_t granule = chunk + i * kGranuleBytes;
      if ((block->backed.load(std::memory_order_relaxed) >> i & 1) != 0)
        Paint(granule, Pointer(granule), pattern, kGranuleBytes);
    }
    return;
  }
  Unback(region, block, chunk, ~0u);
  block->dropped.store(0, std::memory_order_relaxed);
  block->fill.store(pattern, std::memory_order_release);
}

void Content::Forget(Region* region, uint64_t address, uint64_t bytes) {
  for (uint64_t at = address; at < address + bytes; at += kChunkBytes) {
    SetFill(*region, at, &region->blocks[(at - region->base) / kChunkBytes], 0);
  }
}

void Content::Freeze(Region* region) {
  for (uint64_t at = region->base; at < region->base + region->bytes; at += kGranuleBytes) {
    Block* block = &region->blocks[(at - region->base) / kChunkBytes];
    const uint32_t bit = 1u << ((at % kChunkBytes) / kGranuleBytes);
    if ((block->dropped.load(std::memory_order_relaxed) & bit) == 0) Back(*region, block, at, true);
  }
  region->frozen = true;
}

void Content::FreezeBlocks(Block* blocks, uint64_t count) {
  std::lock_guard lock(mutex_);
  for (uint64_t i = 0; i < count; ++i) {
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
      (TakeBacking(kGranuleBytes) ? blocks[i].backed : blocks[i].dropped).fetch_or(bit, std::memory_order_relaxed);
    }
  }
}

void Content::ForgetBlocks(Block* blocks, uint64_t count) {
  std::lock_guard lock(mutex_);
  for (uint64_t i = 0; i < count; ++i) {
    GiveBacking(static_cast<uint64_t>(std::popcount(blocks[i].backed.exchange(0))) * kGranuleBytes);
    blocks[i].dropped.store(0);
    blocks[i].fill.store(0);
  }
}

void Content::Paint(uint64_t address, void* to, uint32_t pattern, uint64_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  const uint8_t byte = pattern & 0xff;
  if (pattern == byte * 0x01010101u) {
    memset(out, byte, bytes);
    return;
  }
  uint64_t done = 0;
  for (; done < bytes && (address + done) % 4 != 0; ++done) out[done] = pattern >> ((address + done) % 4 * 8);
  for (; done + 4 <= bytes; done += 4) memcpy(out + done, &pattern, 4);
  for (; done < bytes; ++done) out[done] = pattern >> ((address + done) % 4 * 8);
}

bool Content::Write(uint64_t address, const void* source, uint64_t bytes) {
  auto* from = static_cast<const uint8_t*>(source);
  for (const uint64_t end = address + bytes; address < end;) {
    Piece piece;
    if (!PieceAt(address, end, &piece)) {
      memcpy(Pointer(address), from, end - address);  // host memory known to the driver
      return true;
    }
    if (piece.block == nullptr || (piece.block->backed.load(std::memory_order_acquire) & piece.bit) != 0 ||
        Back(*piece.region, piece.block, address, !piece.whole)) {
      memcpy(Pointer(address), from, piece.bytes);
    } else {
      counters_.dropped_bytes.fetch_add(piece.bytes, std::memory_order_relaxed);
    }
    address += piece.bytes;
    from += piece.bytes;
  }
  return true;
}

bool Content::Read(uint64_t address, void* destination, uint64_t bytes) {
  auto* to = static_cast<uint8_t*>(destination);
  for (const uint64_t end = address + bytes; address < end;) {
    Piece piece;
    if (!PieceAt(address, end, &piece)) {
      memcpy(to, Pointer(address), end - address);
      return true;
    }
    if (piece.block == nullptr || (piece.block->backed.load(std::memory_order_acquire) & piece.bit) != 0) {
      memcpy(to, Pointer(address), piece.bytes);
    } else if ((piece.block->dropped.load(std::memory_order_relaxed) & piece.bit) != 0) {
      memset(to, 0, piece.bytes);
      counters_.undefined_reads.fetch_add(1, std::memory_order_relaxed);
    } else {
      Paint(address, to, piece.block->fill.load(std::memory_order_acquire), piece.bytes);
    }
    address += piece.bytes;
    to += piece.bytes;
  }
  return true;
}

bool Content::FillPiece(uint64_t address, const Piece& piece, uint32_t pattern) {
  if (piece.block == nullptr) {
    Paint(address, Pointer(address), pattern, piece.bytes);
    return true;
  }
  const bool backed = (piece.block->backed.load(std::memory_order_acquire) & piece.bit) != 0;
  if (piece.block->fill.load(std::memory_order_relaxed) == pattern) {
    const bool dropped = (piece.block->dropped.load(std::memory_order_relaxed) & piece.bit) != 0;
    if (!backed && !dropped) return true;
    if (piece.whole && !piece.region->frozen) {
      std::lock_guard lock(mutex_);
      Unback(*piece.region, piece.block, address / kChunkBytes * kChunkBytes, piece.bit);
      piece.block->dropped.fetch_and(~piece.bit, std::memory_order_relaxed);
      return true;
    }
  }
  if (backed || Back(*piece.region, piece.block, address, !piece.whole)) {
    Paint(address, Pointer(address), pattern, piece.bytes);
  } else {
    counters_.dropped_bytes.fetch_add(piece.bytes, std::memory_order_relaxed);
  }
  return true;
}

bool Content::Fill(uint64_t address, uint32_t pattern, uint64_t bytes) {
  for (const uint64_t end = address + bytes; address < end;) {
    Region* region = nullptr;
    if (Block* block = WholeChunk(address, end, &region)) {
      SetFill(*region, address, block, pattern);
      address += kChunkBytes;
      continue;
    }
    Piece piece;
    if (!PieceAt(address, end, &piece)) {
      Paint(address, Pointer(address), pattern, end - address);
      return true;
    }
    FillPiece(address, piece, pattern);
    address += piece.bytes;
  }
  return true;
}

bool Content::Copy(uint64_t destination, uint64_t source, uint64_t bytes) {
  while (bytes != 0) {
    Region *to_region = nullptr, *from_region = nullptr;
    Block* to_chunk = WholeChunk(destination, destination + bytes, &to_region);
    Block* from_chunk = WholeChunk(source, source + bytes, &from_region);
    if (to_chunk != nullptr && from_chunk != nullptr && from_chunk->backed.load(std::memory_order_acquire) == 0 &&
        from_chunk->dropped.load(std::memory_order_relaxed) == 0) {
      SetFill(*to_region, destination, to_chunk, from_chunk->fill.load(std::memory_order_acquire));
      destination += kChunkBytes;
      source += kChunkBytes;
      bytes -= kChunkBytes;
      continue;
    }
    Piece from, to;
    const bool from_device = PieceAt(source, source + bytes, &from);
    const bool to_device = PieceAt(destination, destination + bytes, &to);
    uint64_t step = bytes;
    if (from_device) step = std::min(step, from.bytes);
    if (to_device) step = std::min(step, to.bytes);
    const bool real =
        !from_device || from.block == nullptr || (from.block->backed.load(std::memory_order_acquire) & from.bit) != 0;
    if (real) {
      Write(destination, Pointer(source), step);
    } else if ((from.block->dropped.load(std::memory_order_relaxed) & from.bit) != 0) {
      counters_.undefined_reads.fetch_add(1, std::memory_order_relaxed);
      Fill(destination, 0, step);
    } else {
      // The word as it stands at the destination's alignment.
      const uint32_t pattern = from.block->fill.load(std::memory_order_acquire);
      const int turn = static_cast<int>((source - destination) % 4 * 8);
      Fill(destination, std::rotr(pattern, turn), step);
    }
    destination += step;
    source += step;
    bytes -= step;
  }
  return true;
}

}  // namespace mete::emulator::cuda
