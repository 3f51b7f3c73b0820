// What another process hands over: the 64 bytes of a handle, and a file that claims to be shared memory. The input is a
// byte that says which, then its bytes. Neither may crash; a file whose description does not fit its size is refused.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulator/cuda/share_file.h"

using mete::emulator::cuda::ShareFile;
using mete::emulator::cuda::ShareHandle;
using mete::emulator::cuda::ShareKind;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto kind = static_cast<ShareKind>(1 + data[0] / 2 % 3);
  if ((data[0] & 1) == 0) {
    ShareHandle handle{};
    memcpy(&handle, data + 1, std::min(size - 1, sizeof handle));
    (void)ShareFile::Open(handle, kind);
    return 0;
  }
  const int file = memfd_create("share_fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // The last bytes of the input go to the end of the file, where a description of the first page begins.
  if (size > 3 && ftruncate(file, (data[1] % 4) * (2l << 20) + (data[2] % 4) * 2048l) == 0)
    (void)!pwrite(file, data + 3, size - 3, (data[1] % 4) * (2l << 20));
  if ((data[0] & 64) == 0) fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK);
  const auto opened = ShareFile::Open(file, kind);
  if (opened != nullptr && (opened->description().kind != kind || opened->description().bytes % (2ul << 20) != 0))
    abort();
  return 0;
}
