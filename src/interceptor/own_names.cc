#include "interceptor/own_names.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interceptor/loaded_object.h"

namespace mete::interceptor {

void HideOwnNames(const char* const* names, size_t count) {
  if (count == 0) return;
  Dl_info info;
  void* map = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&HideOwnNames), &info, &map, RTLD_DL_LINKMAP) == 0 || map == nullptr) return;
  const auto* own = static_cast<const link_map*>(map);
  const LoadedObject object(own->l_addr, own->l_ld);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < count; ++i) {
    const ElfW(Sym)* entry = object.Entry(names[i]);
    if (entry == nullptr) continue;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(entry) & ~(page - 1);
    const uintptr_t end = (reinterpret_cast<uintptr_t>(entry + 1) + page - 1) & ~(page - 1);
    if (mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0) return;
    auto* writable = const_cast<ElfW(Sym)*>(entry);
    writable->st_shndx = SHN_UNDEF;  // as a name that is wanted, not defined
    writable->st_value = 0;
    mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ);
  }
}

}  // namespace mete::interceptor
