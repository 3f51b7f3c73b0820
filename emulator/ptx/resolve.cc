#include "emulator/ptx/resolve.h"

#include <algorithm>
#include <cstdio>

#include "emulator/ptx/block.h"
#include "emulator/ptx/lanes.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

bool Illegal(Warp& w, const Instruction& in, uint32_t lane, uint64_t address, uint32_t bytes, bool write,
             const char* why) {
  char text[160];
  std::snprintf(text, sizeof text, ": %s of %u bytes at 0x%llx %s", write ? "write" : "read", bytes,
                static_cast<unsigned long long>(address), why);
  w.run->Fail(FaultKind::kIllegalAddress, address, Where(w, in, 1u << lane) + text);
  return false;
}

bool Misaligned(Warp& w, const Instruction& in, uint32_t mask, const uint64_t* address, uint32_t bytes, bool write) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0 || (address[l] & (bytes - 1)) == 0) continue;
    char text[160];
    std::snprintf(text, sizeof text, ": %s of %u bytes at 0x%llx, which is not a multiple of %u",
                  write ? "write" : "read", bytes, static_cast<unsigned long long>(address[l]), bytes);
    w.run->Fail(FaultKind::kMisalignedAddress, address[l], Where(w, in, 1u << l) + text);
    return false;
  }
  return true;
}

uint8_t* InShared(Warp& w, uint64_t offset, uint32_t bytes) {
  std::vector<uint8_t>& shared = w.block->shared;
  return offset < shared.size() && shared.size() - offset >= bytes ? shared.data() + offset : nullptr;
}
uint8_t* InLocal(Warp& w, uint32_t lane, uint64_t offset, uint32_t bytes) {
  if (offset >= w.local_stride || w.local_stride - offset < bytes) return nullptr;
  return w.local.data() + size_t{lane} * w.local_stride + offset;
}
uint8_t* InParameters(Warp& w, uint32_t lane, uint64_t offset, uint32_t bytes, bool write) {
  if ((offset & kAreaBit) != 0) {  // a device function's own
    const uint64_t depth = (offset & ~kAreaBit) >> kAreaDepthShift, at = offset & ((1u << kAreaDepthShift) - 1);
    if (depth > w.depth) return nullptr;
    Frame& f = w.frames[depth];
    if (at >= f.area_stride || f.area_stride - at < bytes) return nullptr;
    return &f.area[size_t{lane} * f.area_stride + at];
  }
  const uint32_t size = w.run->function->parameter_bytes;
  if (write || w.run->launch->parameters == nullptr || offset >= size || size - offset < bytes) return nullptr;
  return const_cast<uint8_t*>(w.run->launch->parameters) + offset;
}

bool ResolveGlobal(Warp& w, const Instruction& in, uint32_t mask, uint32_t bytes, bool write, const uint64_t* address,
                   uint8_t** host, bool traffic) {
  RunState& run = *w.run;
  if (traffic) {
    const uint64_t sectors = run.sectors, lines = run.lines.Distinct();
    uint64_t last = ~uint64_t{0};
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint64_t sector = address[l] >> 5;
      if ((mask & kLaneBit[l]) == 0 || sector == last) continue;
      last = sector;
      ++run.sectors;
      run.lines.Touch(address[l]);
    }
    w.own_sectors += run.sectors - sectors;
    w.own_lines += static_cast<double>(run.lines.Distinct() - lines);
  }
  uint64_t low = ~uint64_t{0}, high = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    low = std::min(low, address[l]);
    high = std::max(high, address[l]);
  }
  if (low >> RunState::kPageShift == high >> RunState::kPageShift) {
    const uint32_t span = static_cast<uint32_t>(high - low) + bytes;
    if (uint8_t* base = run.Translate(low, span, write, in.bypass)) {
      for (uint32_t l = 0; l < kLanes; ++l) host[l] = base + ((mask & kLaneBit[l]) != 0 ? address[l] - low : 0);
      return true;
    }
  }
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask & kLaneBit[l]) == 0) continue;
    host[l] = run.Translate(address[l], bytes, write, in.bypass);
    if (host[l] == nullptr) return Illegal(w, in, l, address[l], bytes, write, "is outside every allocation");
  }
  return true;
}

}  // namespace

template <Space S>
bool Resolve(Warp& w, const Instruction& in, uint32_t mask, uint32_t bytes, bool write, uint8_t* (&host)[kLanes]) {
  alignas(64) uint64_t address[kLanes];
  if (in.wide_address) {
    const uint64_t* a = LanesOf<uint64_t>(w, in.a);
    for (uint32_t l = 0; l < kLanes; ++l) address[l] = a[l] + static_cast<uint64_t>(in.offset);
  } else {
    const uint32_t* a = LanesOf<uint32_t>(w, in.a);
    for (uint32_t l = 0; l < kLanes; ++l) address[l] = static_cast<uint32_t>(a[l] + static_cast<uint32_t>(in.offset));
  }
  uint64_t low_bits = 0, high_bits = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint64_t here = (mask & kLaneBit[l]) != 0 ? address[l] : 0;
    low_bits |= here;
    high_bits |= here;
  }
  if ((low_bits & (bytes - 1)) != 0 && !Misaligned(w, in, mask, address, bytes, write)) return false;
  if constexpr (S == Space::kGlobal || S == Space::kConst) {
    return ResolveGlobal(w, in, mask, bytes, write, address, host, S == Space::kGlobal);
  } else if constexpr (S == Space::kShared) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      host[l] = InShared(w, address[l], bytes);
      if (host[l] == nullptr)
        return Illegal(w, in, l, address[l], bytes, write, "is outside the block's shared memory");
    }
    return true;
  } else if constexpr (S == Space::kLocal) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      host[l] = InLocal(w, l, address[l], bytes);
      if (host[l] == nullptr)
        return Illegal(w, in, l, address[l], bytes, write, "is outside the thread's local memory");
    }
    return true;
  } else if constexpr (S == Space::kParam) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      host[l] = InParameters(w, l, address[l], bytes, write);
      if (host[l] == nullptr) return Illegal(w, in, l, address[l], bytes, write, "is outside the kernel's parameters");
    }
    return true;
  } else {
    if ((high_bits & kWindowMask) == 0) return ResolveGlobal(w, in, mask, bytes, write, address, host, true);
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      const uint64_t offset = address[l] & ~kWindowMask;
      switch (address[l] & kWindowMask) {
        case kSharedWindow: host[l] = InShared(w, offset, bytes); break;
        case kLocalWindow: host[l] = InLocal(w, l, offset, bytes); break;
        case kParamWindow: host[l] = InParameters(w, l, offset, bytes, write); break;
        case kFunctionWindow: host[l] = nullptr; break;
        default:
          host[l] = w.run->Translate(address[l], bytes, write, in.bypass);
          ++w.run->sectors;
          ++w.own_sectors;
          w.run->lines.Touch(address[l]);
      }
      if (host[l] == nullptr) return Illegal(w, in, l, address[l], bytes, write, "is outside every allocation");
    }
    return true;
  }
}

template bool Resolve<Space::kGeneric>(Warp&, const Instruction&, uint32_t, uint32_t, bool, uint8_t* (&)[kLanes]);
template bool Resolve<Space::kGlobal>(Warp&, const Instruction&, uint32_t, uint32_t, bool, uint8_t* (&)[kLanes]);
template bool Resolve<Space::kShared>(Warp&, const Instruction&, uint32_t, uint32_t, bool, uint8_t* (&)[kLanes]);
template bool Resolve<Space::kLocal>(Warp&, const Instruction&, uint32_t, uint32_t, bool, uint8_t* (&)[kLanes]);
template bool Resolve<Space::kConst>(Warp&, const Instruction&, uint32_t, uint32_t, bool, uint8_t* (&)[kLanes]);
template bool Resolve<Space::kParam>(Warp&, const Instruction&, uint32_t, uint32_t, bool, uint8_t* (&)[kLanes]);

}  // namespace mete::emulator::ptx
