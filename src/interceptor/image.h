// How much device memory the variables of a module take, read from its image before the driver loads it.
//
// PTX text: every variable in the state spaces .global and .const (PTX ISA, "State Spaces" and "Variables"). ELF
// (cubin): every section that is loaded (SHF_ALLOC; System V ABI). Fat binaries hold compressed parts and have no
// public description: not known, and left to the broker's audit. Pure but for SizeOfFile; bytes.
#ifndef METE_INTERCEPTOR_IMAGE_H_
#define METE_INTERCEPTOR_IMAGE_H_

#include <cstddef>
#include <cstdint>

#include "interceptor/extent.h"

namespace mete::interceptor {

struct ImageSize {
  bool known = false;
  Extent extent;
};

// `image` as cuModuleLoadData takes it: text with its final zero, or a whole ELF file. Null: not known.
ImageSize SizeOfImage(const void* image);
ImageSize SizeOfFile(const char* path);

// The two kinds, for images of a given length: nothing at or beyond text + size is read.
ImageSize SizeOfPtx(const char* text, size_t size);
ImageSize SizeOfElf(const void* image, size_t size);

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_IMAGE_H_
