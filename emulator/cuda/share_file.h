// Memory that several processes see: a file without a name (memfd) that holds the content of some chunks and, behind
// them, a description. Its maker gives it away as a descriptor, or tells where the descriptor is in a handle of 64
// bytes. Whoever opens one has it from a stranger: everything in it is checked, and it is sealed so that it cannot
// shrink under its reader.
//
// Content that was shared is frozen: all of it is in pages, or was dropped for good for want of backing. The engine
// counts it once for all who hold it (emulator/engine/physical.h). Thread rule: any thread. Units: bytes.
#ifndef METE_EMULATOR_CUDA_SHARE_FILE_H_
#define METE_EMULATOR_CUDA_SHARE_FILE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/cuda/content.h"
#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {

struct Context;
struct Device;

enum class ShareKind : uint32_t { kMemory = 1, kPool, kEvent };

// What stands behind the content. Fixed layout: it crosses processes.
struct ShareDescription {
  char magic[8];
  ShareKind kind;
  uint32_t unused;
  uint64_t nonce;         // a handle that names this file has the same
  uint64_t bytes;         // of content, whole chunks
  uint64_t memory;        // the engine's name of it
  uint8_t uuid[16];       // of the GPU whose memory it is
  uint32_t gpu_instance;  // of it; kNoInstance: the whole GPU
  uint32_t unused_too;
  // Of an event: how often it was recorded, and the last of these that the GPU has reached.
  std::atomic<uint64_t> recorded, reached;
};

// The 64 bytes that a program passes to another process. A stranger's too.
struct ShareHandle {
  char magic[8];
  ShareKind kind;
  uint32_t pid;
  uint64_t start_time;  // of the process, for pids are used again
  int32_t descriptor;
  uint32_t unused;
  uint64_t nonce;
  uint64_t offset, bytes;  // of the allocation in the content
  uint64_t unused_too;
};
static_assert(sizeof(ShareHandle) == 64);

// An open file, mapped description and all. Closes with the last reference.
class ShareFile {
 public:
  // A new one. dropped: per chunk, the granules without content; empty for none.
  static std::shared_ptr<ShareFile> Make(ShareKind kind, uint64_t bytes, const Device* device);
  // Takes the descriptor over. Null: not such a file.
  static std::shared_ptr<ShareFile> Open(int descriptor, ShareKind kind);
  // By a descriptor that stays the caller's.
  static std::shared_ptr<ShareFile> OpenAgain(int descriptor, ShareKind kind);
  // The file that a handle names; null: there is none, or it is this process's own and `own` is not allowed.
  static std::shared_ptr<ShareFile> Open(const ShareHandle& handle, ShareKind kind);
  ~ShareFile();

  int descriptor() const { return descriptor_; }
  ShareDescription& description() { return *description_; }
  std::atomic<uint32_t>* dropped() { return reinterpret_cast<std::atomic<uint32_t>*>(description_ + 1); }
  // A descriptor to give away, which keeps the memory until the last copy of it is closed; -1: no more to be had.
  int Export() const;
  // Null: not visible to this process. Compute instances of one GPU instance share its memory, other instances do not
  // (MIG User Guide, "Application Considerations").
  Device* device() const;
  ShareHandle HandleOf(uint64_t offset, uint64_t bytes) const;
  // Maps the content at `address`, reserved and whole chunks.
  bool MapAt(uint64_t address, uint64_t bytes, int protection) const;

 private:
  ShareFile() = default;
  bool MapDescription(uint64_t bytes);
  int descriptor_ = -1;
  ShareDescription* description_ = nullptr;
  uint64_t description_bytes_ = 0;
};

bool IsOwn(const ShareHandle& handle);
bool IsAlive(const ShareHandle& handle);
uint64_t StartTimeOf(uint32_t pid);

// Gives reserved address space back its inaccessible pages.
void CloseAddresses(uint64_t address, uint64_t bytes);

// Puts the content of a region of this process into a file, once, and makes it physical memory.
CUresult ShareRegion(Region* region, Context* context);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_SHARE_FILE_H_
