// The copy and set functions of the driver API, as thin adapters of copy.h.
#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/copy.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {
namespace {

uint64_t Host(const void* p) { return reinterpret_cast<uint64_t>(p); }

// A copy in two dimensions, of any version, as one in three.
template <typename D>
CUresult Copy2D(const D* d, CUstream stream, bool synchronous) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D deep{};
  deep.srcXInBytes = d->srcXInBytes;
  deep.srcY = d->srcY;
  deep.srcMemoryType = d->srcMemoryType;
  deep.srcHost = d->srcHost;
  deep.srcDevice = d->srcDevice;
  deep.srcArray = d->srcArray;
  deep.srcPitch = d->srcPitch;
  deep.dstXInBytes = d->dstXInBytes;
  deep.dstY = d->dstY;
  deep.dstMemoryType = d->dstMemoryType;
  deep.dstHost = d->dstHost;
  deep.dstDevice = d->dstDevice;
  deep.dstArray = d->dstArray;
  deep.dstPitch = d->dstPitch;
  deep.WidthInBytes = d->WidthInBytes;
  deep.Height = d->Height;
  deep.Depth = 1;
  return RunCopy(deep, stream, synchronous);
}

template <typename D>
CUresult Copy3D(const D* d, CUstream stream, bool synchronous) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D deep{};
  deep.srcXInBytes = d->srcXInBytes;
  deep.srcY = d->srcY;
  deep.srcZ = d->srcZ;
  deep.srcLOD = d->srcLOD;
  deep.srcMemoryType = d->srcMemoryType;
  deep.srcHost = d->srcHost;
  deep.srcDevice = d->srcDevice;
  deep.srcArray = d->srcArray;
  deep.srcPitch = d->srcPitch;
  deep.srcHeight = d->srcHeight;
  deep.dstXInBytes = d->dstXInBytes;
  deep.dstY = d->dstY;
  deep.dstZ = d->dstZ;
  deep.dstLOD = d->dstLOD;
  deep.dstMemoryType = d->dstMemoryType;
  deep.dstHost = d->dstHost;
  deep.dstDevice = d->dstDevice;
  deep.dstArray = d->dstArray;
  deep.dstPitch = d->dstPitch;
  deep.dstHeight = d->dstHeight;
  deep.WidthInBytes = d->WidthInBytes;
  deep.Height = d->Height;
  deep.Depth = d->Depth;
  return RunCopy(deep, stream, synchronous);
}

CUresult CheckPeers(CUcontext first, CUcontext second) {
  Driver* driver = nullptr;
  if (CUresult error = Initialized(&driver)) return error;
  for (CUcontext handle : {first, second}) {
    auto* context = FromHandle<Context>(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

// A side that says nothing of its context means the current one, as other copies do.
CUresult CopyPeer3D(const CUDA_MEMCPY3D_PEER* d, CUstream stream, bool synchronous) {
  if (Driver::Get() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUcontext current = ToHandle<CUcontext>(CurrentOrNull());
  if (CUresult error = CheckPeers(d->srcContext != nullptr ? d->srcContext : current,
                                  d->dstContext != nullptr ? d->dstContext : current))
    return error;
  return Copy3D(d, stream, synchronous);
}

// To or from a one-dimensional array; the other side is linear memory or another array.
struct ArrayPlace {
  CUarray array = nullptr;
  uint64_t offset = 0;
};

CUresult OneDimensional(const ArrayPlace& place, size_t bytes) {
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  auto* array = FromHandle<Array>(place.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  const uint64_t row = d.Width * array->element;
  return d.Height != 0 || d.Depth != 0 || place.offset > row || bytes > row - place.offset ? CUDA_ERROR_INVALID_VALUE
                                                                                           : CUDA_SUCCESS;
}

CUresult ToArray(ArrayPlace to, CUmemorytype type, uint64_t from, size_t bytes, CUstream stream, bool synchronous) {
  if (CUresult error = OneDimensional(to, bytes)) return error;
  CUDA_MEMCPY3D d{};
  d.srcMemoryType = type;
  d.srcHost = reinterpret_cast<const void*>(from);
  d.srcDevice = from;
  d.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  d.dstArray = to.array;
  d.dstXInBytes = to.offset;
  d.WidthInBytes = bytes;
  d.Height = d.Depth = 1;
  return RunCopy(d, stream, synchronous);
}

CUresult FromArray(CUmemorytype type, uint64_t to, ArrayPlace from, size_t bytes, CUstream stream, bool synchronous) {
  if (CUresult error = OneDimensional(from, bytes)) return error;
  CUDA_MEMCPY3D d{};
  d.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  d.srcArray = from.array;
  d.srcXInBytes = from.offset;
  d.dstMemoryType = type;
  d.dstHost = reinterpret_cast<void*>(to);
  d.dstDevice = to;
  d.WidthInBytes = bytes;
  d.Height = d.Depth = 1;
  return RunCopy(d, stream, synchronous);
}

CUresult BetweenArrays(ArrayPlace to, ArrayPlace from, size_t bytes) {
  if (CUresult error = OneDimensional(to, bytes)) return error;
  if (CUresult error = OneDimensional(from, bytes)) return error;
  CUDA_MEMCPY3D d{};
  d.srcMemoryType = d.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  d.srcArray = from.array;
  d.srcXInBytes = from.offset;
  d.dstArray = to.array;
  d.dstXInBytes = to.offset;
  d.WidthInBytes = bytes;
  d.Height = d.Depth = 1;
  return RunCopy(d, nullptr, false);
}

}  // namespace

CUresult api::cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return RunTransfer(Line(to, Host(from), bytes, Transfer::kDestination), nullptr, true);
}

CUresult api::cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return RunTransfer(Line(Host(to), from, bytes, Transfer::kSource), nullptr, true);
}

CUresult api::cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), nullptr, false);
}

CUresult api::cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return RunTransfer(Line(to, Host(from), bytes, Transfer::kDestination), stream, false);
}

CUresult api::cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return RunTransfer(Line(Host(to), from, bytes, Transfer::kSource), stream, false);
}

CUresult api::cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), stream, false);
}

CUresult api::cuMemcpyHtoD(CUdeviceptr_v1 to, const void* from, unsigned int bytes) {
  return RunTransfer(Line(to, Host(from), bytes, Transfer::kDestination), nullptr, true);
}

CUresult api::cuMemcpyDtoH(void* to, CUdeviceptr_v1 from, unsigned int bytes) {
  return RunTransfer(Line(Host(to), from, bytes, Transfer::kSource), nullptr, true);
}

CUresult api::cuMemcpyDtoD(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes) {
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), nullptr, false);
}

CUresult api::cuMemcpyHtoDAsync(CUdeviceptr_v1 to, const void* from, unsigned int bytes, CUstream stream) {
  return RunTransfer(Line(to, Host(from), bytes, Transfer::kDestination), stream, false);
}

CUresult api::cuMemcpyDtoHAsync(void* to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream) {
  return RunTransfer(Line(Host(to), from, bytes, Transfer::kSource), stream, false);
}

CUresult api::cuMemcpyDtoDAsync(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream) {
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), stream, false);
}

CUresult api::cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return RunTransfer(Line(to, from, bytes, 0), nullptr, true);
}

CUresult api::cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return RunTransfer(Line(to, from, bytes, 0), stream, false);
}

CUresult api::cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes) {
  if (CUresult error = CheckPeers(to_context, from_context)) return error;
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), nullptr, true);
}

CUresult api::cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                size_t bytes, CUstream stream) {
  if (CUresult error = CheckPeers(to_context, from_context)) return error;
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), stream, false);
}

CUresult api::cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* d) { return CopyPeer3D(d, nullptr, true); }

CUresult api::cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* d, CUstream stream) { return CopyPeer3D(d, stream, false); }

CUresult api::cuMemcpy2D_v2(const CUDA_MEMCPY2D* d) { return Copy2D(d, nullptr, true); }

CUresult api::cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* d, CUstream stream) { return Copy2D(d, stream, false); }

CUresult api::cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* d) { return Copy2D(d, nullptr, true); }

CUresult api::cuMemcpy2D(const CUDA_MEMCPY2D_v1* d) { return Copy2D(d, nullptr, true); }

CUresult api::cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1* d, CUstream stream) { return Copy2D(d, stream, false); }

CUresult api::cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1* d) { return Copy2D(d, nullptr, true); }

CUresult api::cuMemcpy3D_v2(const CUDA_MEMCPY3D* d) { return Copy3D(d, nullptr, true); }

CUresult api::cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* d, CUstream stream) { return Copy3D(d, stream, false); }

CUresult api::cuMemcpy3D(const CUDA_MEMCPY3D_v1* d) { return Copy3D(d, nullptr, true); }

CUresult api::cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1* d, CUstream stream) { return Copy3D(d, stream, false); }

CUresult api::cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes) {
  return BetweenArrays({to, to_offset}, {from, from_offset}, bytes);
}

CUresult api::cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return FromArray(CU_MEMORYTYPE_DEVICE, to, {from, offset}, bytes, nullptr, false);
}

CUresult api::cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return ToArray({to, offset}, CU_MEMORYTYPE_DEVICE, from, bytes, nullptr, false);
}

CUresult api::cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return FromArray(CU_MEMORYTYPE_HOST, Host(to), {from, offset}, bytes, nullptr, true);
}

CUresult api::cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return ToArray({to, offset}, CU_MEMORYTYPE_HOST, Host(from), bytes, nullptr, true);
}

CUresult api::cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes, CUstream stream) {
  return FromArray(CU_MEMORYTYPE_HOST, Host(to), {from, offset}, bytes, stream, false);
}

CUresult api::cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream) {
  return ToArray({to, offset}, CU_MEMORYTYPE_HOST, Host(from), bytes, stream, false);
}

CUresult api::cuMemcpyAtoA(CUarray to, unsigned int to_offset, CUarray from, unsigned int from_offset,
                           unsigned int bytes) {
  return BetweenArrays({to, to_offset}, {from, from_offset}, bytes);
}

CUresult api::cuMemcpyAtoD(CUdeviceptr_v1 to, CUarray from, unsigned int offset, unsigned int bytes) {
  return FromArray(CU_MEMORYTYPE_DEVICE, to, {from, offset}, bytes, nullptr, false);
}

CUresult api::cuMemcpyDtoA(CUarray to, unsigned int offset, CUdeviceptr_v1 from, unsigned int bytes) {
  return ToArray({to, offset}, CU_MEMORYTYPE_DEVICE, from, bytes, nullptr, false);
}

CUresult api::cuMemcpyAtoH(void* to, CUarray from, unsigned int offset, unsigned int bytes) {
  return FromArray(CU_MEMORYTYPE_HOST, Host(to), {from, offset}, bytes, nullptr, true);
}

CUresult api::cuMemcpyHtoA(CUarray to, unsigned int offset, const void* from, unsigned int bytes) {
  return ToArray({to, offset}, CU_MEMORYTYPE_HOST, Host(from), bytes, nullptr, true);
}

CUresult api::cuMemcpyAtoHAsync(void* to, CUarray from, unsigned int offset, unsigned int bytes, CUstream stream) {
  return FromArray(CU_MEMORYTYPE_HOST, Host(to), {from, offset}, bytes, stream, false);
}

CUresult api::cuMemcpyHtoAAsync(CUarray to, unsigned int offset, const void* from, unsigned int bytes,
                                CUstream stream) {
  return ToArray({to, offset}, CU_MEMORYTYPE_HOST, Host(from), bytes, stream, false);
}

}  // namespace mete::emulator::cuda
