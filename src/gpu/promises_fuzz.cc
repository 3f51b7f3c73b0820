// Any text is either a table or a Usage error, for both tables; never a crash, an exception or a hang.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "gpu/promises.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = mete::gpu::PromiseTable::Parse(text);
  if (!table.ok() && mete::ExitCodeFor(table.status()) != mete::ExitCode::kUsage) std::abort();
  const auto notes = mete::gpu::MechanismNotes::Parse(text);
  if (!notes.ok() && mete::ExitCodeFor(notes.status()) != mete::ExitCode::kUsage) std::abort();
  return 0;
}
