#include "emulator/cuda/share_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator/cuda/context.h"
#include "emulator/cuda/driver.h"
#include "emulator/engine/export_lock.h"

namespace mete::emulator::cuda {
namespace {

constexpr char kFileMagic[8] = {'m', 'e', 't', 'e', 's', 'h', 'r', '1'};
constexpr char kHandleMagic[8] = {'m', 'e', 't', 'e', 'i', 'p', 'c', '1'};
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kMost = 1ull << 46;

uint64_t DescriptionBytes(uint64_t bytes) {
  return RoundUp(sizeof(ShareDescription) + bytes / kChunkBytes * sizeof(uint32_t), 4096);
}

uint32_t GpuInstanceOf(const Device& device) { return device.mig ? device.mig->gpu_instance : kNoInstance; }

}  // namespace

uint64_t StartTimeOf(uint32_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  if (got <= 0) return 0;
  text[got] = '\0';
  const char* at = strrchr(text, ')');  // the name may hold anything
  if (at == nullptr) return 0;
  ++at;
  for (int field = 2; field < 21 && at != nullptr; ++field) at = strchr(at + 1, ' ');
  return at == nullptr ? 0 : strtoull(at, nullptr, 10);
}

bool IsOwn(const ShareHandle& handle) { return handle.pid == static_cast<uint32_t>(getpid()); }

bool IsAlive(const ShareHandle& handle) { return kill(static_cast<pid_t>(handle.pid), 0) == 0 || errno != ESRCH; }

void CloseAddresses(uint64_t address, uint64_t bytes) {
  void* at = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) return;
  madvise(at, bytes, MADV_NOHUGEPAGE);
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_DONTDUMP);
}

bool ShareFile::MapDescription(uint64_t bytes) {
  description_bytes_ = DescriptionBytes(bytes);
  void* at =
      mmap(nullptr, description_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, static_cast<off_t>(bytes));
  if (at == MAP_FAILED) return false;
  description_ = static_cast<ShareDescription*>(at);
  return true;
}

std::shared_ptr<ShareFile> ShareFile::Make(ShareKind kind, uint64_t bytes, const Device* device) {
  std::shared_ptr<ShareFile> file(new ShareFile);
  file->descriptor_ = memfd_create("mete-shared-device-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file->descriptor_ < 0) return nullptr;
  if (ftruncate(file->descriptor_, static_cast<off_t>(bytes + DescriptionBytes(bytes))) != 0 ||
      fcntl(file->descriptor_, F_ADD_SEALS, kSeals) != 0 || !file->MapDescription(bytes))
    return nullptr;
  ShareDescription& d = *file->description_;
  memcpy(d.magic, kFileMagic, sizeof d.magic);
  d.kind = kind;
  d.bytes = bytes;
  memcpy(d.uuid, device->info.uuid, sizeof d.uuid);
  d.gpu_instance = GpuInstanceOf(*device);
  if (getrandom(&d.nonce, sizeof d.nonce, 0) != sizeof d.nonce) return nullptr;
  return file;
}

std::shared_ptr<ShareFile> ShareFile::Open(int descriptor, ShareKind kind) {
  if (descriptor < 0) return nullptr;
  std::shared_ptr<ShareFile> file(new ShareFile);
  file->descriptor_ = descriptor;
  struct stat status {};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(descriptor, &status) != 0) return nullptr;
  // The content is whole chunks, and the description less than one behind a content below 1 TiB, so try its size.
  const auto total = static_cast<uint64_t>(status.st_size);
  if (total > kMost + kMost / 16) return nullptr;
  for (uint64_t bytes = total / kChunkBytes * kChunkBytes;; bytes -= kChunkBytes) {
    if (bytes + DescriptionBytes(bytes) == total) {
      if (!file->MapDescription(bytes)) return nullptr;
      const ShareDescription& d = *file->description_;
      if (memcmp(d.magic, kFileMagic, sizeof d.magic) != 0 || d.kind != kind || d.bytes != bytes) return nullptr;
      return file;
    }
    if (bytes == 0 || bytes + DescriptionBytes(bytes) < total) return nullptr;
  }
}

std::shared_ptr<ShareFile> ShareFile::OpenAgain(int descriptor, ShareKind kind) {
  if (descriptor < 0 || fcntl(descriptor, F_GET_SEALS) < 0) return nullptr;  // opening something else may have effects
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  return Open(open(path, O_RDWR | O_CLOEXEC), kind);
}

int ShareFile::Export() const {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor_);
  const int exported = open(path, O_RDWR | O_CLOEXEC);
  if (exported >= 0 && !LockExported(exported)) {
    close(exported);
    return -1;
  }
  return exported;
}

std::shared_ptr<ShareFile> ShareFile::Open(const ShareHandle& handle, ShareKind kind) {
  if (memcmp(handle.magic, kHandleMagic, sizeof handle.magic) != 0 || handle.kind != kind || handle.descriptor < 0 ||
      StartTimeOf(handle.pid) != handle.start_time)
    return nullptr;
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/fd/%d", handle.pid, handle.descriptor);
  // Looked at before it is opened: opening a device or a pipe of a stranger's choice might have effects.
  struct stat status {};
  if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  std::shared_ptr<ShareFile> file = Open(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), kind);
  return file != nullptr && file->description_->nonce == handle.nonce ? file : nullptr;
}

ShareFile::~ShareFile() {
  if (description_ != nullptr) munmap(description_, description_bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

Device* ShareFile::device() const {
  for (const auto& device : Driver::Get()->devices()) {
    if (memcmp(device->info.uuid, description_->uuid, sizeof description_->uuid) == 0 &&
        GpuInstanceOf(*device) == description_->gpu_instance)
      return device.get();
  }
  return nullptr;
}

ShareHandle ShareFile::HandleOf(uint64_t offset, uint64_t bytes) const {
  ShareHandle handle{};
  memcpy(handle.magic, kHandleMagic, sizeof handle.magic);
  handle.kind = description_->kind;
  handle.pid = static_cast<uint32_t>(getpid());
  handle.start_time = StartTimeOf(handle.pid);
  handle.descriptor = descriptor_;
  handle.nonce = description_->nonce;
  handle.offset = offset;
  handle.bytes = bytes;
  return handle;
}

bool ShareFile::MapAt(uint64_t address, uint64_t bytes, int protection) const {
  void* at =
      mmap(reinterpret_cast<void*>(address), bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor_, 0);
  if (at == MAP_FAILED) return false;
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_DONTDUMP);
  return true;
}

CUresult ShareRegion(Region* region, Context* context) {
  if (region->file != nullptr) return CUDA_SUCCESS;
  std::shared_ptr<ShareFile> file = ShareFile::Make(ShareKind::kMemory, region->bytes, context->device);
  if (file == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (region->memory == 0) {
    const Result result = Driver::Get()->client().SharePhysical(context->engine, region->bytes, &region->memory);
    if (result != Result::kOk) return context->Explain(result);
  }
  file->description().memory = region->memory;
  // Only what is not zero is written: the file stays sparse.
  std::vector<uint32_t> real(region->bytes / kChunkBytes);
  for (size_t i = 0; i < real.size(); ++i)
    real[i] = region->blocks[i].fill.load() != 0 ? ~0u : region->blocks[i].backed.load();
  Content& content = Driver::Get()->content();
  content.Freeze(region);
  for (uint64_t at = 0; at < region->bytes; at += kGranuleBytes) {
    const Block& block = region->blocks[at / kChunkBytes];
    const uint64_t place = region->base + at;
    const uint32_t bit = 1u << (at % kChunkBytes / kGranuleBytes);
    if ((block.backed.load() & real[at / kChunkBytes] & bit) == 0) continue;
    if (pwrite(file->descriptor(), reinterpret_cast<void*>(place), kGranuleBytes, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(kGranuleBytes))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (uint64_t i = 0; i < region->bytes / kChunkBytes; ++i) file->dropped()[i].store(region->blocks[i].dropped.load());
  if (!file->MapAt(region->base, region->bytes, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
  region->file = std::move(file);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
