#include "interceptor/loaded_object.h"

#include <string.h>

namespace mete::interceptor {
namespace {

uint32_t GnuHash(const char* name) {
  uint32_t h = 5381;
  for (; *name != '\0'; ++name) h = h * 33 + static_cast<unsigned char>(*name);
  return h;
}

uint32_t SysvHash(const char* name) {
  uint32_t h = 0;
  for (; *name != '\0'; ++name) {
    h = (h << 4) + static_cast<unsigned char>(*name);
    const uint32_t high = h & 0xF0000000u;
    h = (h ^ (high >> 24)) & ~high;
  }
  return h;
}

}  // namespace

LoadedObject::LoadedObject(ElfW(Addr) base, const ElfW(Dyn) * dynamic) : base_(base) { Read(dynamic); }

LoadedObject::LoadedObject(const dl_phdr_info& info) : base_(info.dlpi_addr) {
  for (ElfW(Half) i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type == PT_DYNAMIC) Read(reinterpret_cast<const ElfW(Dyn)*>(base_ + header.p_vaddr));
  }
}

// glibc relocates the addresses in a dynamic section it may write to, and leaves those of the vDSO as they are.
const void* LoadedObject::At(ElfW(Addr) value) const {
  return reinterpret_cast<const void*>(value < base_ ? base_ + value : value);
}

void LoadedObject::Read(const ElfW(Dyn) * dynamic) {
  ElfW(Xword) soname = 0;
  bool named = false;
  for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB: symbols_ = static_cast<const ElfW(Sym)*>(At(entry->d_un.d_ptr)); break;
      case DT_STRTAB: strings_ = static_cast<const char*>(At(entry->d_un.d_ptr)); break;
      case DT_GNU_HASH: gnu_hash_ = static_cast<const uint32_t*>(At(entry->d_un.d_ptr)); break;
      case DT_HASH: hash_ = static_cast<const uint32_t*>(At(entry->d_un.d_ptr)); break;
      case DT_SONAME:
        soname = entry->d_un.d_val;
        named = true;
        break;
      default: break;
    }
  }
  if (named && strings_ != nullptr) soname_ = strings_ + soname;
}

bool LoadedObject::Matches(uint32_t index, const char* name) const {
  const ElfW(Sym)& symbol = symbols_[index];
  return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 && strcmp(strings_ + symbol.st_name, name) == 0;
}

const ElfW(Sym) * LoadedObject::Entry(const char* name) const {
  if (symbols_ == nullptr || strings_ == nullptr) return nullptr;
  if (gnu_hash_ != nullptr) {
    const uint32_t buckets = gnu_hash_[0], first = gnu_hash_[1], blooms = gnu_hash_[2];
    const uint32_t* bucket = gnu_hash_ + 4 + blooms * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t* chain = bucket + buckets;
    if (buckets == 0) return nullptr;
    const uint32_t hash = GnuHash(name);
    for (uint32_t index = bucket[hash % buckets]; index >= first && index != 0; ++index) {
      const uint32_t there = chain[index - first];
      if ((there | 1) == (hash | 1) && Matches(index, name)) return &symbols_[index];
      if ((there & 1) != 0) break;  // the last of its bucket
    }
    return nullptr;
  }
  if (hash_ == nullptr || hash_[0] == 0) return nullptr;
  const uint32_t* chain = hash_ + 2 + hash_[0];
  for (uint32_t index = hash_[2 + SysvHash(name) % hash_[0]]; index != STN_UNDEF; index = chain[index]) {
    if (Matches(index, name)) return &symbols_[index];
  }
  return nullptr;
}

void* LoadedObject::Find(const char* name) const {
  const ElfW(Sym)* symbol = Entry(name);
  return symbol == nullptr ? nullptr : reinterpret_cast<void*>(base_ + symbol->st_value);
}

bool Holds(const dl_phdr_info& info, const void* address) {
  const auto at = reinterpret_cast<ElfW(Addr)>(address);
  for (ElfW(Half) i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const ElfW(Addr) begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && at >= begin && at < begin + header.p_memsz) return true;
  }
  return false;
}

}  // namespace mete::interceptor
