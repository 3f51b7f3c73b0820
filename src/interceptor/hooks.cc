#include "interceptor/hooks.h"

namespace mete::interceptor {

CUresult Init(decltype(&::cuInit) real, unsigned int flags) {
  if (!DriverFound()) return CUDA_ERROR_UNKNOWN;
  // First the limits, then the driver: a program without limits gets no GPU.
  Process* p = process.load(std::memory_order_acquire);
  if (p == nullptr) p = AttachNow(true);
  if (p == nullptr) return CUDA_ERROR_UNKNOWN;
  const CUresult result = real(flags);
  if (result == CUDA_SUCCESS) MapDevices(*p);
  return result;
}

bool See(Process& p, const ledger::View& view, Sight* sight) {
  const uint64_t quota = view.limits->gpu[view.gpu].memory_quota.load(std::memory_order_relaxed);
  if (quota == ledger::kNoQuota) return false;
  p.pools.RefreshIfLoose(p);
  const uint64_t used = ledger::Used(view);
  *sight = {quota, used < quota ? quota - used : 0};
  return true;
}

uint64_t PitchedBytes(uint64_t width, uint64_t height) {
  constexpr uint64_t kPitch = 512;
  uint64_t bytes;
  if (width > kAbsurd || __builtin_mul_overflow(RoundUp(width, kPitch), height, &bytes)) return kAbsurd;
  return bytes;
}

void FreeUnremembered(uint64_t address) {
  if (driver.cuMemFree_v2 != nullptr) driver.cuMemFree_v2(address);
}

void FreeOverQuota(uint64_t address, CUstream stream) {
  if (driver.cuMemFreeAsync != nullptr && driver.cuMemFreeAsync(address, stream) == CUDA_SUCCESS) return;
  FreeUnremembered(address);
}

uint64_t BaseOf(CUdeviceptr address) {
  CUdeviceptr base = address;
  size_t size = 0;
  if (driver.cuMemGetAddressRange_v2 == nullptr ||
      driver.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS) {
    return address;
  }
  return base;
}

void DestroyUnremembered(CUmodule module) {
  if (driver.cuModuleUnload != nullptr) driver.cuModuleUnload(module);
}
void DestroyUnremembered(CUarray array) {
  if (driver.cuArrayDestroy != nullptr) driver.cuArrayDestroy(array);
}
void DestroyUnremembered(CUmipmappedArray array) {
  if (driver.cuMipmappedArrayDestroy != nullptr) driver.cuMipmappedArrayDestroy(array);
}
void DestroyUnremembered(CUexternalMemory memory) {
  if (driver.cuDestroyExternalMemory != nullptr) driver.cuDestroyExternalMemory(memory);
}

}  // namespace mete::interceptor
