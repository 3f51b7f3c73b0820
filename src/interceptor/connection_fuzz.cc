// The broker's answer, as bytes from a stranger.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interceptor/connection.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mete::ledger::AttachReply reply;
  if (mete::interceptor::CheckReply(data, size, &reply) != nullptr) return 0;
  if (memchr(reply.message, 0, sizeof reply.message) == nullptr) __builtin_trap();
  if (reply.slot >= mete::ledger::kMaxSlots && reply.slot != mete::ledger::kNoSlot) __builtin_trap();
  for (const char* c = reply.message; *c != '\0'; ++c) {
    if (*c == 27 || *c == '\n') __builtin_trap();
  }
  return 0;
}
