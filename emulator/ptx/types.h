// PTX's fundamental types and state spaces, and what their names say. Plain values; no state.
#ifndef METE_EMULATOR_PTX_TYPES_H_
#define METE_EMULATOR_PTX_TYPES_H_

#include <cstdint>
#include <string_view>

namespace mete::emulator::ptx {

enum class Type : uint8_t {
  kNone,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF32,
  kF64,
  kPred,
  kBF16,   // bfloat16
  kF16x2,  // two halves in 32 bits, the first in the low half
  kBF16x2,
  kTypes
};

inline constexpr std::string_view kTypeNames[] = {"no type", ".b8",  ".b16",  ".b32",  ".b64",   ".u8",    ".u16",
                                                  ".u32",    ".u64", ".s8",   ".s16",  ".s32",   ".s64",   ".f16",
                                                  ".f32",    ".f64", ".pred", ".bf16", ".f16x2", ".bf16x2"};

inline Type TypeNamed(std::string_view name) {
  for (uint8_t i = 1; i < static_cast<uint8_t>(Type::kTypes); ++i)
    if (kTypeNames[i] == name) return static_cast<Type>(i);
  return Type::kNone;
}

// Bytes in memory; 0 for kNone and kPred.
constexpr uint32_t SizeOf(Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
    case Type::kS8: return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kBF16:
    case Type::kF16: return 2;
    case Type::kB32:
    case Type::kU32:
    case Type::kS32:
    case Type::kF16x2:
    case Type::kBF16x2:
    case Type::kF32: return 4;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64: return 8;
    default: return 0;
  }
}

// The untyped type of that many bytes; kNone where there is none.
constexpr Type BitsOf(uint32_t bytes) {
  return bytes == 8   ? Type::kB64
         : bytes == 4 ? Type::kB32
         : bytes == 2 ? Type::kB16
         : bytes == 1 ? Type::kB8
                      : Type::kNone;
}
constexpr bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}
constexpr bool IsFloat(Type type) {
  return type == Type::kF16 || type == Type::kF32 || type == Type::kF64 || type == Type::kBF16;
}
constexpr bool IsPacked(Type type) { return type == Type::kF16x2 || type == Type::kBF16x2; }
constexpr bool IsHalf(Type type) { return type == Type::kF16 || type == Type::kBF16 || IsPacked(type); }
constexpr bool IsBits(Type type) {
  return type == Type::kB8 || type == Type::kB16 || type == Type::kB32 || type == Type::kB64;
}

// Bytes of one lane of a register of this type: 8-bit registers live in 16 bits, predicates in a mask word of the warp.
constexpr uint32_t LaneBytes(Type type) {
  if (type == Type::kPred) return 0;
  const uint32_t size = SizeOf(type);
  return size == 1 ? 2 : size;
}

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam };

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_TYPES_H_
