// The dynamic section of an object that is loaded in this process: its name and the symbols it defines, read from the
// object's own tables in memory. What dlsym tells, without dlsym: for the library that stands in front of it.
//
// A value; the caller keeps the object loaded. Reads only memory that the dynamic linker has mapped and relocated, so
// any thread. Nothing is allocated. libc only. Facts: the System V ABI (dynamic section, DT_HASH) and the description
// of DT_GNU_HASH in the binutils and glibc documents.
#ifndef METE_INTERCEPTOR_LOADED_OBJECT_H_
#define METE_INTERCEPTOR_LOADED_OBJECT_H_

#include <link.h>

#include <cstddef>
#include <cstdint>

namespace mete::interceptor {

class LoadedObject {
 public:
  LoadedObject(ElfW(Addr) base, const ElfW(Dyn) * dynamic);
  // From what dl_iterate_phdr says; without a dynamic section it has neither name nor symbols.
  explicit LoadedObject(const dl_phdr_info& info);

  // DT_SONAME, or "".
  const char* Soname() const { return soname_; }
  // The address of what it defines under this name, in any version and any state but local; null if nothing.
  void* Find(const char* name) const;
  // The entry itself, for who changes the object's own table.
  const ElfW(Sym) * Entry(const char* name) const;

 private:
  void Read(const ElfW(Dyn) * dynamic);
  bool Matches(uint32_t index, const char* name) const;
  const void* At(ElfW(Addr) value) const;

  ElfW(Addr) base_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const uint32_t* gnu_hash_ = nullptr;
  const uint32_t* hash_ = nullptr;
  const char* soname_ = "";
};

// Does the object of `info` hold this address?
bool Holds(const dl_phdr_info& info, const void* address);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_LOADED_OBJECT_H_
