// What an emulated node says of itself, and /proc/PID/stat of any program, are read or refused; never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "mechanism/node.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = mete::mechanism::ParseEngineFile(text, "engine.json");
  if (file.ok() ? file->pid == 0 || file->driver_root.front() != '/'
                : mete::ExitCodeFor(file.status()) != mete::ExitCode::kUsage) {
    std::abort();
  }
  mete::mechanism::StartTimeOf(text);
  return 0;
}
