#include "interceptor/library.h"

#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {
namespace {

// The record of a library in a context.
uint64_t KeyIn(CUlibrary library, CUcontext context) {
  return HashOf(reinterpret_cast<uint64_t>(library) + HashOf(reinterpret_cast<uint64_t>(context))) | uint64_t{1} << 63;
}

}  // namespace

CUresult Libraries::Begin(Process& p, const Extent& extent) {
  into_.clear();
  const uint64_t bytes = extent.Most();
  CUresult result = CUDA_SUCCESS;
  p.contexts.ForEach([&](CUcontext context, uint32_t gpu) {
    if (result != CUDA_SUCCESS) return;
    if (bytes >= kAbsurd || !ReserveOrReclaim(p, ViewOf(p, gpu), bytes)) {
      result = kOutOfMemory;
      return;
    }
    into_[context] = gpu;
  });
  if (result != CUDA_SUCCESS) End(p, nullptr, extent);
  return result;
}

void Libraries::End(Process& p, CUlibrary library, const Extent& extent) {
  for (const auto& [context, gpu] : into_) {
    const Ticket ticket{ViewOf(p, gpu), context, extent.Most(), true};
    if (library == nullptr) {
      p.memory.Cancel(ticket);
    } else {
      p.memory.EndObject(ticket, KeyIn(library, context), extent);
    }
  }
  if (library != nullptr) libraries_[library] = extent;
}

void Libraries::Unloaded(Process& p, CUlibrary library) {
  std::lock_guard lock(mutex_);
  if (libraries_.erase(library) == 0) return;
  p.contexts.ForEach([&](CUcontext context, uint32_t) {
    Taken taken;
    if (p.memory.Take(KeyIn(library, context), &taken)) p.memory.Settle(p, taken);
  });
}

// Without asking: the context is there, and the first use of the library in it cannot be refused.
void Libraries::ContextMade(Process& p, CUcontext context, uint32_t gpu) {
  std::lock_guard lock(mutex_);
  for (const auto& [library, extent] : libraries_) {
    const Ticket ticket{ViewOf(p, gpu), context, extent.Most(), true};
    ledger::Charge(ticket.view, ticket.reserved);
    p.memory.EndObject(ticket, KeyIn(library, context), extent);
  }
}

}  // namespace mete::interceptor
