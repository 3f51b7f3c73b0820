// Narrowing NVML's lists to a tenant's own entries. Pure but for the heap; any thread; libc only.
#ifndef METE_INTERCEPTOR_NVML_FILTER_H_
#define METE_INTERCEPTOR_NVML_FILTER_H_

#include <stdlib.h>

#include <algorithm>

#include "nvml/abi.h"

namespace mete::interceptor {

// Asks the real function, ask(&room, items), into room of our own (it may know of many more), keeps what `ours`
// accepts, and answers with NVML's rule for arrays: too little room says how much is needed.
template <typename Item, typename Ask, typename Ours>
nvml::abi::nvmlReturn_t Filter(unsigned* count, Item* items, Ask ask, Ours ours) {
  using nvml::abi::NVML_ERROR_INSUFFICIENT_SIZE;
  using nvml::abi::NVML_ERROR_MEMORY;
  using nvml::abi::NVML_ERROR_NOT_FOUND;
  using nvml::abi::NVML_ERROR_UNKNOWN;
  using nvml::abi::NVML_SUCCESS;
  using nvml::abi::nvmlReturn_t;
  if (count == nullptr) return ask(count, items);
  unsigned room = 64;
  for (int attempt = 0; attempt < 8; ++attempt) {
    auto* all = static_cast<Item*>(calloc(room, sizeof(Item)));
    if (all == nullptr) return NVML_ERROR_MEMORY;
    unsigned found = room;
    const nvmlReturn_t result = ask(&found, all);
    if (result == NVML_ERROR_INSUFFICIENT_SIZE) {
      free(all);
      room = std::max(found, room) + 16;
      continue;
    }
    if (result != NVML_SUCCESS) {
      free(all);
      if (result != NVML_ERROR_NOT_FOUND) *count = 0;
      return result;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < found; ++i) {
      if (ours(all[i])) all[kept++] = all[i];
    }
    const unsigned given = *count;
    *count = kept;
    const bool fits = kept <= given && (kept == 0 || items != nullptr);
    if (fits) std::copy(all, all + kept, items);
    free(all);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
  }
  return NVML_ERROR_UNKNOWN;
}

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_NVML_FILTER_H_
