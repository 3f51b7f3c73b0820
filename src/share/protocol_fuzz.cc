// Bytes of a stranger as the broker reads them: frames, then a request; and as a command reads a reply.
#include <cstdlib>
#include <string>

#include "share/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)mete::share::ReadReply(text);
  const auto command = mete::share::ReadCommand(text);
  // What is read and written again must be read again.
  if (command.ok() && !mete::share::ReadCommand(mete::share::WriteCommand(*command)).ok()) std::abort();
  mete::share::Unframer unframer(mete::share::kMostRequestBytes);
  unframer.Append(text);
  for (;;) {
    const auto frame = unframer.Next();
    if (!frame.ok() || !*frame) return 0;
    (void)mete::share::ReadCommand(**frame);
  }
}
