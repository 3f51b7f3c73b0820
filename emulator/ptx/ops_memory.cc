// Loads and stores, with vectors, in every state space, and the parameter space.
#include <cstring>

#include "emulator/ptx/lanes.h"
#include "emulator/ptx/resolve.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

template <Space S, typename M, typename R>
void RunLoad(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes];
  if (!Resolve<S>(w, in, mask, sizeof(M), false, host)) return;
  R* d = LanesOf<R>(w, in.d);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    M value;
    std::memcpy(&value, host[l], sizeof value);
    d[l] = static_cast<R>(value);
  }
}

template <Space S, typename M, typename R>
void RunLoadVector(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes];
  if (!Resolve<S>(w, in, mask, sizeof(M) * in.count, false, host)) return;
  Frame& f = w.Top();
  const uint32_t* list = &f.program->lists[in.target];
  for (uint32_t i = 0; i < in.count; ++i) {
    R* d = LanesOf<R>(w, list[i]);
    f.ready[list[i] / kSlotBytes] = w.now + in.latency;
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      M value;
      std::memcpy(&value, host[l] + i * sizeof(M), sizeof value);
      d[l] = static_cast<R>(value);
    }
  }
}

template <Space S, typename M, typename R>
void RunStore(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes];
  if (!Resolve<S>(w, in, mask, sizeof(M), true, host)) return;
  const R* b = LanesOf<R>(w, in.b);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    const M value = static_cast<M>(b[l]);
    std::memcpy(host[l], &value, sizeof value);
  }
}

template <Space S, typename M, typename R>
void RunStoreVector(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes];
  if (!Resolve<S>(w, in, mask, sizeof(M) * in.count, true, host)) return;
  const uint32_t* list = &w.Top().program->lists[in.target];
  for (uint32_t i = 0; i < in.count; ++i) {
    const R* b = LanesOf<R>(w, list[i]);
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      const M value = static_cast<M>(b[l]);
      std::memcpy(host[l] + i * sizeof(M), &value, sizeof value);
    }
  }
}

// Parameters of the kernel: the same for all lanes. The decoder has checked the bounds.
template <typename M, typename R>
void RunLoadKernelParameter(Warp& w, const Instruction& in, uint32_t mask) {
  const uint8_t* parameters = w.run->launch->parameters;
  const uint32_t* list = &w.Top().program->lists[in.target];
  for (uint32_t i = 0; i < in.count; ++i) {
    M value = 0;
    if (parameters != nullptr) std::memcpy(&value, parameters + in.offset + i * sizeof(M), sizeof value);
    R* d = LanesOf<R>(w, list[i]);
    const R wide = static_cast<R>(value);
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? wide : d[l];
  }
}

template <typename M, typename R>
void RunLoadOwnParameter(Warp& w, const Instruction& in, uint32_t mask) {
  const Frame& f = w.Top();
  const uint32_t* list = &f.program->lists[in.target];
  for (uint32_t i = 0; i < in.count; ++i) {
    R* d = LanesOf<R>(w, list[i]);
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      M value;
      std::memcpy(&value, &f.area[size_t{l} * f.area_stride + static_cast<size_t>(in.offset) + i * sizeof(M)],
                  sizeof value);
      d[l] = static_cast<R>(value);
    }
  }
}

template <typename M, typename R>
void RunStoreParameter(Warp& w, const Instruction& in, uint32_t mask) {
  Frame& f = w.Top();
  const uint32_t* list = &f.program->lists[in.target];
  for (uint32_t i = 0; i < in.count; ++i) {
    const R* b = LanesOf<R>(w, list[i]);
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      const M value = static_cast<M>(b[l]);
      std::memcpy(&f.area[size_t{l} * f.area_stride + static_cast<size_t>(in.offset) + i * sizeof(M)], &value,
                  sizeof value);
    }
  }
}

// Chooses an instance by memory type and register width. Signed types extend with their sign.
template <template <typename, typename> typename Pick>
Handler ByType(Type type, uint32_t register_bytes) {
  const bool is_signed = IsSigned(type);
  switch (SizeOf(type)) {
    case 1:
      if (register_bytes == 2) return is_signed ? Pick<int8_t, int16_t>::value : Pick<uint8_t, uint16_t>::value;
      if (register_bytes == 4) return is_signed ? Pick<int8_t, int32_t>::value : Pick<uint8_t, uint32_t>::value;
      return is_signed ? Pick<int8_t, int64_t>::value : Pick<uint8_t, uint64_t>::value;
    case 2:
      if (register_bytes == 2) return Pick<uint16_t, uint16_t>::value;
      if (register_bytes == 4) return is_signed ? Pick<int16_t, int32_t>::value : Pick<uint16_t, uint32_t>::value;
      return is_signed ? Pick<int16_t, int64_t>::value : Pick<uint16_t, uint64_t>::value;
    case 4:
      if (register_bytes == 4) return Pick<uint32_t, uint32_t>::value;
      if (register_bytes == 8) return is_signed ? Pick<int32_t, int64_t>::value : Pick<uint32_t, uint64_t>::value;
      return nullptr;
    case 8: return register_bytes == 8 ? Pick<uint64_t, uint64_t>::value : nullptr;
    default: return nullptr;
  }
}

template <Space S>
struct In {
  template <typename M, typename R>
  struct LoadOne {
    static constexpr Handler value = &RunLoad<S, M, R>;
  };
  template <typename M, typename R>
  struct LoadMany {
    static constexpr Handler value = &RunLoadVector<S, M, R>;
  };
  template <typename M, typename R>
  struct StoreOne {
    static constexpr Handler value = &RunStore<S, M, R>;
  };
  template <typename M, typename R>
  struct StoreMany {
    static constexpr Handler value = &RunStoreVector<S, M, R>;
  };
};
template <typename M, typename R>
struct KernelParameter {
  static constexpr Handler value = &RunLoadKernelParameter<M, R>;
};
template <typename M, typename R>
struct OwnParameter {
  static constexpr Handler value = &RunLoadOwnParameter<M, R>;
};
template <typename M, typename R>
struct PutParameter {
  static constexpr Handler value = &RunStoreParameter<M, R>;
};

template <Space S>
Handler LoadFrom(Type type, uint32_t bytes, bool vector) {
  return vector ? ByType<In<S>::template LoadMany>(type, bytes) : ByType<In<S>::template LoadOne>(type, bytes);
}
template <Space S>
Handler StoreTo(Type type, uint32_t bytes, bool vector) {
  return vector ? ByType<In<S>::template StoreMany>(type, bytes) : ByType<In<S>::template StoreOne>(type, bytes);
}

}  // namespace

Handler Load(Space space, Type type, uint32_t bytes, bool vector) {
  switch (space) {
    case Space::kGeneric: return LoadFrom<Space::kGeneric>(type, bytes, vector);
    case Space::kGlobal: return LoadFrom<Space::kGlobal>(type, bytes, vector);
    case Space::kShared: return LoadFrom<Space::kShared>(type, bytes, vector);
    case Space::kLocal: return LoadFrom<Space::kLocal>(type, bytes, vector);
    case Space::kConst: return LoadFrom<Space::kConst>(type, bytes, vector);
    case Space::kParam: return LoadFrom<Space::kParam>(type, bytes, vector);
  }
  return nullptr;
}

Handler Store(Space space, Type type, uint32_t bytes, bool vector) {
  switch (space) {
    case Space::kGeneric: return StoreTo<Space::kGeneric>(type, bytes, vector);
    case Space::kGlobal: return StoreTo<Space::kGlobal>(type, bytes, vector);
    case Space::kShared: return StoreTo<Space::kShared>(type, bytes, vector);
    case Space::kLocal: return StoreTo<Space::kLocal>(type, bytes, vector);
    default: return nullptr;
  }
}

Handler LoadParameter(Type type, uint32_t bytes, bool entry) {
  return entry ? ByType<KernelParameter>(type, bytes) : ByType<OwnParameter>(type, bytes);
}
Handler StoreParameter(Type type, uint32_t bytes) { return ByType<PutParameter>(type, bytes); }

}  // namespace mete::emulator::ptx
