// What device memory holds. The device address space of the process is cut into chunks (2 MiB); a Region gives a run of
// chunks its bounds and its Blocks. A block knows, per granule (64 KiB), whether real pages keep the content; the rest
// of it holds one repeated 32-bit pattern. Pages are real only after the node's backing budget allowed them; when it
// does not, content is dropped, reads give zeroes, and both are counted.
//
// Ownership: regions belong to whoever made them and must be removed before they are deleted, with no access in flight.
// Thread rule: any thread; the fast path of Translate takes no lock. Content has no order of its own: callers serialise
// conflicting accesses as the streams say. Units: bytes.
#ifndef METE_EMULATOR_CUDA_CONTENT_H_
#define METE_EMULATOR_CUDA_CONTENT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "emulator/cuda/address_space.h"
#include "emulator/engine/client.h"
#include "emulator/ptx/ptx.h"

namespace mete::emulator::cuda {

class ShareFile;

constexpr uint64_t kSlotBytes = 512;  // unit of sub-allocation in a chunk
constexpr uint32_t kSlotsPerChunk = kChunkBytes / kSlotBytes;
constexpr uint32_t kGranulesPerChunk = kChunkBytes / kGranuleBytes;

struct Block {
  std::atomic<uint32_t> backed{0};   // granules whose content is in real pages
  std::atomic<uint32_t> dropped{0};  // granules whose content was lost for want of backing
  std::atomic<uint32_t> fill{0};     // what every word of the other granules is
  std::atomic<uint32_t> open{0};     // 1: the pages may be touched
};

// Exact bounds of the allocations in one sub-allocated chunk.
struct Slots {
  std::atomic<uint16_t> first[kSlotsPerChunk] = {};  // 1 + first slot of the allocation this slot belongs to; 0: free
  std::atomic<uint32_t> bytes[kSlotsPerChunk] = {};  // at the first slot: its size
};

struct Region {
  uint64_t base = 0, bytes = 0;  // whole chunks
  std::atomic<uint64_t> end{0};  // exact end of the allocation, when there are no slots
  std::unique_ptr<Slots> slots;
  Block* blocks = nullptr;  // one per chunk; null: plain host memory, always readable and writable
  std::unique_ptr<Block[]> own_blocks;
  // Bits of devices, by ordinal. The memory of one device is for those that may reach it; memory of no device (-1) and
  // mappings are for whom these bits name.
  std::atomic<uint64_t> readers{~0ull}, writers{~0ull};
  int device = -1;
  const std::atomic<uint64_t>* granted = nullptr;  // devices that may reach it besides, as bits
  bool shared = false;                             // pages belong to a file that other mappings share
  std::shared_ptr<ShareFile> file;                 // where the content is, when other processes see it
  uint64_t memory = 0;                             // the engine's name of it, from then on
  bool frozen = false;  // shared with other processes: what is backed and what is dropped changes no more
};

struct ContentCounters {
  std::atomic<uint64_t> dropped_bytes{0}, undefined_reads{0}, backed_bytes{0};
};

class Content : public ptx::Memory {
 public:
  // Takes and returns the node's real pages; null: none to be had. Set once before the first write.
  void SetClient(Client* client) { client_ = client; }

  void Add(Region* region);
  // Also frees the pages of a region with blocks of its own.
  void Remove(Region* region);
  // Host memory that kernels may use: registered, page-locked. Not in chunks.
  void AddHost(uint64_t address, uint64_t bytes);
  void RemoveHost(uint64_t address);

  uint8_t* Translate(uint64_t address, size_t size, bool write) override { return Translate({}, address, size, write); }

  // Who asks: a device with the devices whose memory it may reach, as bits; by default the host, which may all.
  struct Viewer {
    uint64_t self = ~0ull, reach = ~0ull;
  };
  uint8_t* Translate(Viewer viewer, uint64_t address, size_t size, bool write);

  // Whether [address, address + bytes) is all inside allocations.
  bool Contains(uint64_t address, uint64_t bytes, bool write);
  bool IsDevice(uint64_t address) const { return Find(address) != nullptr; }
  // The ordinal of the device whose memory it is; -1: none's.
  int DeviceOf(uint64_t address) const {
    const Region* region = Find(address);
    return region == nullptr ? -1 : region->device;
  }
  // Lets the content of the region be where others see it: from here on all of it is in pages, or dropped for good.
  // The caller then puts a file in the place of the pages.
  void Freeze(Region* region);
  // The same for blocks without content so far, that no region has yet.
  void FreezeBlocks(Block* blocks, uint64_t count);
  Region* RegionOf(uint64_t address) const { return Find(address); }

  // For ranges that Contains; false if not.
  bool Write(uint64_t address, const void* source, uint64_t bytes);
  bool Read(uint64_t address, void* destination, uint64_t bytes);
  bool Copy(uint64_t destination, uint64_t source, uint64_t bytes);
  // pattern: the 32-bit word, aligned to the range's own start; bytes a multiple of the element that was repeated.
  bool Fill(uint64_t address, uint32_t pattern, uint64_t bytes);
  // Forgets the content of a range of whole chunks (freed memory that stays reserved).
  void Forget(Region* region, uint64_t address, uint64_t bytes);
  void ForgetBlocks(Block* blocks, uint64_t count);

  const ContentCounters& counters() const { return counters_; }

 private:
  struct Leaf {
    std::atomic<Region*> chunks[1 << 13] = {};
  };
  static constexpr int kLeafShift = 21 + 13;

  Region* Find(uint64_t address) const;
  bool InBounds(const Region& region, uint64_t address, uint64_t size) const;
  bool Allowed(const Region& region, Viewer viewer, bool write) const;
  bool HostContains(uint64_t address, uint64_t bytes);
  // Makes the pages of a granule real, painted with the block's pattern. False: no backing left, the granule is
  // dropped.
  bool Back(Region& region, Block* block, uint64_t address, bool paint);
  void Unback(Region& region, Block* block, uint64_t chunk_address, uint32_t granules);
  bool TakeBacking(uint64_t bytes);
  void GiveBacking(uint64_t bytes);
  // A place within one granule.
  struct Piece {
    Region* region;
    Block* block;    // null: plain memory
    uint32_t bit;    // of the granule in its block
    uint64_t bytes;  // to the end of the granule or of the range
    bool whole;      // the piece is the whole granule
  };
  bool PieceAt(uint64_t address, uint64_t end, Piece* piece) const;
  // The same for a chunk that lies wholly in [address, end); null if there is none at address.
  Block* WholeChunk(uint64_t address, uint64_t end, Region** region) const;
  void SetFill(Region& region, uint64_t chunk_address, Block* block, uint32_t pattern);
  bool FillPiece(uint64_t address, const Piece& piece, uint32_t pattern);
  // Repeats the word into `to`, as it would stand at device address `address`.
  static void Paint(uint64_t address, void* to, uint32_t pattern, uint64_t bytes);

  Client* client_ = nullptr;
  std::atomic<Leaf*> top_[1 << 13] = {};
  std::mutex mutex_;            // backing state, slow path
  uint64_t spare_backing_ = 0;  // taken from the node, not in use; guarded by mutex_
  std::shared_mutex host_mutex_;
  std::map<uint64_t, uint64_t> host_;  // address → bytes
  ContentCounters counters_;
};

// Device memory as the kernels of one device see it.
class DeviceView : public ptx::Memory {
 public:
  DeviceView(Content* content, Content::Viewer viewer) : content_(content), viewer_(viewer) {}
  uint8_t* Translate(uint64_t address, size_t size, bool write) override {
    return content_->Translate(viewer_, address, size, write);
  }

 private:
  Content* const content_;
  const Content::Viewer viewer_;
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_CONTENT_H_
