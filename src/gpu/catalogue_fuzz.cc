// Any text is either a catalogue or a Usage error; never a crash, an exception or a hang.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "gpu/catalogue.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto catalogue = mete::gpu::Catalogue::Parse({reinterpret_cast<const char*>(data), size});
  if (!catalogue.ok()) {
    if (mete::ExitCodeFor(catalogue.status()) != mete::ExitCode::kUsage) std::abort();
    return 0;
  }
  for (const auto& board : catalogue->boards()) {
    if (!catalogue->Find(board.id).ok()) std::abort();
  }
  return 0;
}
