#include "interceptor/proc_address.h"

#include <atomic>
#include <cstdint>

namespace mete::interceptor {
namespace {

constexpr uint32_t kCapacity = 1024;  // of which at most a few hundred are used
struct Pair {
  std::atomic<void*> real;
  std::atomic<void*> wrapper;
};
constinit Pair pairs[kCapacity];
constinit std::atomic<uint32_t> passed_on{0};
constinit std::atomic<bool> learned{false};

uint32_t Hash(const void* address) {
  auto bits = reinterpret_cast<uintptr_t>(address) >> 4;
  return static_cast<uint32_t>((bits * 0x9E3779B97F4A7C15ull) >> 40);
}

// A driver may hand out other addresses than the dynamic linker does. Asks it once for every ABI that mete wraps and
// remembers the answers. Two threads that do so at once do the same.
template <typename Ask>
void Learn(Ask ask) {
  if (learned.load(std::memory_order_acquire)) return;
  for (unsigned i = 0; i < kEntryCount; ++i) {
    const Entry& entry = kEntries[i];
    if (entry.wrapper == nullptr) continue;
    const cuuint64_t flags = entry.stream == DefaultStream::kPerThread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                                       : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    void* real = nullptr;
    if (ask(entry.name, &real, entry.version, flags) == CUDA_SUCCESS && real != nullptr)
      AddExchange(real, entry.wrapper);
  }
  learned.store(true, std::memory_order_release);
}

}  // namespace

void AddExchange(void* real, void* wrapper) {
  for (uint32_t at = Hash(real), probe = 0; probe < kCapacity; ++probe, ++at) {
    Pair& pair = pairs[at % kCapacity];
    void* present = pair.real.load(std::memory_order_acquire);
    if (present == real) return;
    if (present != nullptr) continue;
    if (passed_on.fetch_add(1, std::memory_order_relaxed) >= kCapacity / 2) return;
    // A reader that sees the key before its wrapper waits a moment for it.
    if (pair.real.compare_exchange_strong(present, real, std::memory_order_acq_rel)) {
      pair.wrapper.store(wrapper, std::memory_order_release);
      return;
    }
    if (present == real) return;
  }
}

void* Exchange(void* real) {
  for (uint32_t at = Hash(real), probe = 0; probe < kCapacity; ++probe, ++at) {
    Pair& pair = pairs[at % kCapacity];
    void* present = pair.real.load(std::memory_order_acquire);
    if (present == nullptr) return real;
    if (present != real) continue;
    void* wrapper = pair.wrapper.load(std::memory_order_acquire);
    while (wrapper == nullptr) wrapper = pair.wrapper.load(std::memory_order_acquire);
    return wrapper;
  }
  return real;
}

CUresult GetProcAddress(decltype(&::cuGetProcAddress) real, const char* symbol, void** pfn, int version,
                        cuuint64_t flags) {
  Learn([&](const char* name, void** address, int first, cuuint64_t stream) {
    return real(name, address, first, stream);
  });
  const CUresult result = real(symbol, pfn, version, flags);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) *pfn = Exchange(*pfn);
  return result;
}

CUresult GetProcAddress(decltype(&::cuGetProcAddress_v2) real, const char* symbol, void** pfn, int version,
                        cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  Learn([&](const char* name, void** address, int first, cuuint64_t stream) {
    CUdriverProcAddressQueryResult ignored;
    return real(name, address, first, stream, &ignored);
  });
  const CUresult result = real(symbol, pfn, version, flags, status);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) *pfn = Exchange(*pfn);
  return result;
}

}  // namespace mete::interceptor
