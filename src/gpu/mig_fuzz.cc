// Any text is either a set of MIG tables or a Usage error; never a crash, an exception or a hang.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "gpu/mig.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tables = mete::gpu::MigTables::Parse({reinterpret_cast<const char*>(data), size});
  if (!tables.ok()) {
    if (mete::ExitCodeFor(tables.status()) != mete::ExitCode::kUsage) std::abort();
    return 0;
  }
  for (const auto& board : tables->boards()) {
    if (tables->Find(board.id) == nullptr) std::abort();
    for (const auto& profile : board.profiles) {
      if (board.Find(profile.name) != &profile || board.FindById(profile.id) != &profile) std::abort();
      for (const int start : profile.starts) board.InstanceId(profile, start);
    }
  }
  return 0;
}
