// atom and red: lane by lane, in lane order, with the host's atomics where the word is aligned: several runs may share
// device memory.
#include <algorithm>
#include <cstring>

#include "emulator/ptx/half.h"
#include "emulator/ptx/lanes.h"
#include "emulator/ptx/resolve.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

template <typename T>
using Word = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

template <typename T, typename F>
T ReadModifyWrite(uint8_t* host, F change) {
  Word<T> old, next;
  if (reinterpret_cast<uintptr_t>(host) % sizeof(T) != 0) {
    T value;
    std::memcpy(&value, host, sizeof value);
    const T changed = change(value);
    std::memcpy(host, &changed, sizeof changed);
    return value;
  }
  auto* word = reinterpret_cast<Word<T>*>(host);
  old = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    T value;
    std::memcpy(&value, &old, sizeof value);
    const T changed = change(value);
    std::memcpy(&next, &changed, sizeof next);
    if (__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return value;
  }
}

struct Add {
  template <typename T>
  T operator()(T old, T b, T) const {
    if constexpr (std::is_floating_point_v<T>)
      return old + b;
    else
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(b));
  }
};
template <bool Brain>
struct AddHalf {
  static uint16_t Sum(uint16_t a, uint16_t b) {
    return Brain ? BrainOfDouble(double{FloatOfBrain(a)} + FloatOfBrain(b))
                 : HalfOfDouble(double{FloatOfHalf(a)} + FloatOfHalf(b));
  }
  template <typename T>
  T operator()(T old, T b, T) const {
    uint32_t r = Sum(static_cast<uint16_t>(old), static_cast<uint16_t>(b));
    if constexpr (sizeof(T) == 4)
      r |= static_cast<uint32_t>(Sum(static_cast<uint16_t>(old >> 16), static_cast<uint16_t>(b >> 16))) << 16;
    return static_cast<T>(r);
  }
};
struct Min {
  template <typename T>
  T operator()(T old, T b, T) const {
    return std::min(old, b);
  }
};
struct Max {
  template <typename T>
  T operator()(T old, T b, T) const {
    return std::max(old, b);
  }
};
struct And {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old & b;
  }
};
struct Or {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old | b;
  }
};
struct Xor {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old ^ b;
  }
};
struct Exchange {
  template <typename T>
  T operator()(T, T b, T) const {
    return b;
  }
};
struct CompareAndSwap {
  template <typename T>
  T operator()(T old, T b, T c) const {
    return old == b ? c : old;
  }
};
struct Increment {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old >= b ? T(0) : old + 1;
  }
};
struct Decrement {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old == 0 || old > b ? b : old - 1;
  }
};

template <Space S, typename T, typename F>
void RunIn(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes];
  if (!Resolve<S>(w, in, mask, sizeof(T), true, host)) return;
  T* d = LanesOf<T>(w, in.d);
  const T* b = LanesOf<T>(w, in.b);
  const T* c = LanesOf<T>(w, in.c);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const T operand = b[l], other = c[l];
    d[l] = ReadModifyWrite<T>(host[l], [&](T old) { return F()(old, operand, other); });
  }
}

template <typename T, typename F>
void RunAtomic(Warp& w, const Instruction& in, uint32_t mask) {
  if (in.space == Space::kGlobal)
    RunIn<Space::kGlobal, T, F>(w, in, mask);
  else if (in.space == Space::kShared)
    RunIn<Space::kShared, T, F>(w, in, mask);
  else
    RunIn<Space::kGeneric, T, F>(w, in, mask);
}

template <typename F>
Handler Arithmetic(Type t) {
  switch (t) {
    case Type::kU32: return &RunAtomic<uint32_t, F>;
    case Type::kS32: return &RunAtomic<int32_t, F>;
    case Type::kU64: return &RunAtomic<uint64_t, F>;
    case Type::kS64: return &RunAtomic<int64_t, F>;
    default: return nullptr;
  }
}
template <typename F>
Handler Bits(Type t) {
  return t == Type::kB32 ? &RunAtomic<uint32_t, F> : t == Type::kB64 ? &RunAtomic<uint64_t, F> : nullptr;
}

}  // namespace

Handler Atomic(std::string_view op, Type t) {
  if (op == "add") {
    if (t == Type::kF16) return &RunAtomic<uint16_t, AddHalf<false>>;
    if (t == Type::kBF16) return &RunAtomic<uint16_t, AddHalf<true>>;
    if (t == Type::kF16x2) return &RunAtomic<uint32_t, AddHalf<false>>;
    if (t == Type::kBF16x2) return &RunAtomic<uint32_t, AddHalf<true>>;
    return t == Type::kF32 ? &RunAtomic<float, Add> : t == Type::kF64 ? &RunAtomic<double, Add> : Arithmetic<Add>(t);
  }
  if (op == "min") return Arithmetic<Min>(t);
  if (op == "max") return Arithmetic<Max>(t);
  if (op == "and") return Bits<And>(t);
  if (op == "or") return Bits<Or>(t);
  if (op == "xor") return Bits<Xor>(t);
  if (op == "exch") return t == Type::kB16 ? &RunAtomic<uint16_t, Exchange> : Bits<Exchange>(t);
  if (op == "cas") return t == Type::kB16 ? &RunAtomic<uint16_t, CompareAndSwap> : Bits<CompareAndSwap>(t);
  if (op == "inc") return t == Type::kU32 ? &RunAtomic<uint32_t, Increment> : nullptr;
  if (op == "dec") return t == Type::kU32 ? &RunAtomic<uint32_t, Decrement> : nullptr;
  return nullptr;
}

}  // namespace mete::emulator::ptx
