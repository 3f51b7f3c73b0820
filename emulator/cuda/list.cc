#include "emulator/cuda/list.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace mete::emulator::cuda {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kUserEnd = 1ull << 47;    // a process's addresses lie below
constexpr uint64_t kEachPage = 64ull << 20;  // up to so many bytes every page is looked at, else the two ends
constexpr uint64_t kPagesAtOnce = 512;

// Whether a byte of each of the pages can be read. The kernel reads it, so that nothing faults here. Where a system
// forbids the call, memory counts as readable.
bool AreReadable(uint64_t first, uint64_t count, uint64_t step) {
  char bytes[kPagesAtOnce];
  iovec there[kPagesAtOnce];
  while (count != 0) {
    const uint64_t now = std::min(count, kPagesAtOnce);
    for (uint64_t i = 0; i < now; ++i) there[i] = {reinterpret_cast<void*>(first + i * step), 1};
    const iovec here = {bytes, now};
    const ssize_t got = process_vm_readv(getpid(), &here, 1, there, now, 0);
    if (got < 0 ? errno == EFAULT : static_cast<uint64_t>(got) < now) return false;
    first += now * step;
    count -= now;
  }
  return true;
}

}  // namespace

bool IsMapped(const void* address, uint64_t bytes) {
  const auto start = reinterpret_cast<uint64_t>(address);
  if (bytes > kUserEnd || start > kUserEnd - bytes) return false;
  if (bytes <= kPage) return true;
  const uint64_t first = start / kPage * kPage, last = (start + bytes - 1) / kPage * kPage;
  if (bytes <= kEachPage) return AreReadable(first, (last - first) / kPage + 1, kPage);
  // Writes nothing back; it only finds the first hole.
  if (msync(reinterpret_cast<void*>(first), last + kPage - first, MS_ASYNC) != 0 && errno == ENOMEM) return false;
  return AreReadable(first, 2, last - first);
}

}  // namespace mete::emulator::cuda
