// Any text is either a mig-parted file that reads back as it was written, or a Usage error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "plan/mig/parted.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = mete::plan::mig::ParseParted({reinterpret_cast<const char*>(data), size}, "input");
  if (!file.ok()) {
    if (mete::ExitCodeFor(file.status()) != mete::ExitCode::kUsage) std::abort();
    return 0;
  }
  const auto again = mete::plan::mig::ParseParted(mete::plan::mig::WriteParted(*file), "written");
  if (!again.ok() || !(*again == *file)) std::abort();
  return 0;
}
