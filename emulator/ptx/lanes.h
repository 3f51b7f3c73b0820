// Loops over the lanes of a warp, written so that the compiler makes vector code of them. For the handlers only.
//
// A result register may be one of the operands: lane i depends on lane i alone, which is what METE_LANES_INDEPENDENT
// tells the compiler. The files that include this are built with -fno-strict-aliasing: a register's bytes are read
// through whatever type the instruction names.
#ifndef METE_EMULATOR_PTX_LANES_H_
#define METE_EMULATOR_PTX_LANES_H_

#include <cstdint>
#include <type_traits>

#include "emulator/ptx/handlers.h"
#include "emulator/ptx/warp.h"

#if defined(__clang__)
#define METE_LANES_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define METE_LANES_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace mete::emulator::ptx {

alignas(64) inline constexpr uint32_t kLaneBit[kLanes] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
    1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

template <typename T>
inline T* LanesOf(Warp& w, uint32_t slot) {
  return reinterpret_cast<T*>(__builtin_assume_aligned(w.frame + slot, kSlotBytes));
}

inline uint32_t& PredicateOf(Warp& w, uint32_t slot) { return *reinterpret_cast<uint32_t*>(w.frame + slot); }

inline void SetPredicate(Warp& w, uint32_t slot, uint32_t value, uint32_t mask) {
  uint32_t& p = PredicateOf(w, slot);
  p = (p & ~mask) | (value & mask);
}

template <typename D, typename A, typename F>
inline void Map1(Warp& w, const Instruction& in, uint32_t mask, F f) {
  D* d = LanesOf<D>(w, in.d);
  const A* a = LanesOf<A>(w, in.a);
  if (mask == ~0u) {
    METE_LANES_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = f(a[l]);
  } else {
    METE_LANES_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? f(a[l]) : d[l];
  }
}

template <typename D, typename A, typename B, typename F>
inline void Map2(Warp& w, const Instruction& in, uint32_t mask, F f) {
  D* d = LanesOf<D>(w, in.d);
  const A* a = LanesOf<A>(w, in.a);
  const B* b = LanesOf<B>(w, in.b);
  if (mask == ~0u) {
    METE_LANES_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = f(a[l], b[l]);
  } else {
    METE_LANES_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? f(a[l], b[l]) : d[l];
  }
}

template <typename D, typename A, typename B, typename C, typename F>
inline void Map3(Warp& w, const Instruction& in, uint32_t mask, F f) {
  D* d = LanesOf<D>(w, in.d);
  const A* a = LanesOf<A>(w, in.a);
  const B* b = LanesOf<B>(w, in.b);
  const C* c = LanesOf<C>(w, in.c);
  if (mask == ~0u) {
    METE_LANES_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = f(a[l], b[l], c[l]);
  } else {
    METE_LANES_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? f(a[l], b[l], c[l]) : d[l];
  }
}

template <typename T, typename F>
void RunUnary(Warp& w, const Instruction& in, uint32_t m) {
  Map1<T, T>(w, in, m, F());
}
template <typename T, typename F>
void RunBinary(Warp& w, const Instruction& in, uint32_t m) {
  Map2<T, T, T>(w, in, m, F());
}
template <typename T, typename F>
void RunTernary(Warp& w, const Instruction& in, uint32_t m) {
  Map3<T, T, T, T>(w, in, m, F());
}

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_LANES_H_
