#include "interceptor/elf_needs.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include <cstdint>

namespace mete::interceptor {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#endif

class File {
 public:
  File(const void* bytes, size_t size) : bytes_(static_cast<const char*>(bytes)), size_(size) {}

  template <typename T>
  bool Copy(uint64_t offset, T* value) const {
    if (offset > size_ || size_ - offset < sizeof(T)) return false;
    memcpy(value, bytes_ + offset, sizeof(T));
    return true;
  }
  // A string that ends within the file and within `limit` bytes of its table.
  const char* String(uint64_t table, uint64_t table_size, uint64_t index) const {
    if (table > size_ || index >= table_size || index >= size_ - table) return nullptr;
    const uint64_t room = table_size - index < size_ - table - index ? table_size - index : size_ - table - index;
    const char* text = bytes_ + table + index;
    return memchr(text, '\0', room) != nullptr ? text : nullptr;
  }

 private:
  const char* bytes_;
  size_t size_;
};

constexpr unsigned kMostSegments = 128, kMostEntries = 4096;

// The file's offset of a virtual address, by the loadable segments.
bool OffsetOf(const File& file, const ElfW(Ehdr) & header, uint64_t address, uint64_t* offset) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    if (!file.Copy(header.e_phoff + uint64_t{i} * sizeof segment, &segment)) return false;
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz)
      continue;
    return !__builtin_add_overflow(segment.p_offset, address - segment.p_vaddr, offset);
  }
  return false;
}

struct Strings {
  uint64_t address = 0, size = 0, offset = 0;
};

}  // namespace

bool ReadElfNeeds(const void* bytes, size_t size, ElfNeeds* needs) {
  *needs = ElfNeeds{};
  const File file(bytes, size);
  ElfW(Ehdr) header;
  if (!file.Copy(0, &header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine || header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phnum > kMostSegments ||
      header.e_phoff > size) {
    return false;
  }
  ElfW(Phdr) dynamic{};
  for (unsigned i = 0; i < header.e_phnum && dynamic.p_type != PT_DYNAMIC; ++i) {
    if (!file.Copy(header.e_phoff + uint64_t{i} * sizeof dynamic, &dynamic)) return false;
  }
  if (dynamic.p_type != PT_DYNAMIC) return true;  // needs nothing
  const uint64_t entries = dynamic.p_filesz / sizeof(ElfW(Dyn));
  if (entries > kMostEntries || dynamic.p_offset > size) return false;
  Strings strings;
  ElfW(Dyn) entry;
  for (uint64_t i = 0; i < entries; ++i) {
    if (!file.Copy(dynamic.p_offset + i * sizeof entry, &entry)) return false;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) strings.address = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) strings.size = entry.d_un.d_val;
  }
  if (!OffsetOf(file, header, strings.address, &strings.offset)) return false;
  bool run_path = false;
  for (uint64_t i = 0; i < entries; ++i) {
    if (!file.Copy(dynamic.p_offset + i * sizeof entry, &entry)) return false;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag != DT_NEEDED && entry.d_tag != DT_SONAME && entry.d_tag != DT_RPATH && entry.d_tag != DT_RUNPATH)
      continue;
    const char* text = file.String(strings.offset, strings.size, entry.d_un.d_val);
    if (text == nullptr) return false;
    switch (entry.d_tag) {
      case DT_NEEDED:
        if (needs->count == ElfNeeds::kMost) return false;
        needs->needed[needs->count++] = text;
        break;
      case DT_SONAME: needs->soname = text; break;
      case DT_RUNPATH:
        needs->run_path = text;
        run_path = true;
        break;
      default:
        if (!run_path) needs->run_path = text;
    }
  }
  return true;
}

}  // namespace mete::interceptor
