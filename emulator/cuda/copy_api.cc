// The copy and set functions of the driver API, as thin adapters of copy.h.
#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/copy.h"

namespace mete::emulator::cuda {
namespace {

Transfer Line(uint64_t destination, uint64_t source, uint64_t bytes, unsigned must_be_device) {
  Transfer t;
  t.destination = destination;
  t.source = source;
  t.box.width = bytes;
  t.must_be_device = must_be_device;
  return t;
}

uint64_t Host(const void* p) { return reinterpret_cast<uint64_t>(p); }

// Where a side of a 2D or 3D copy starts; false: not linear memory.
bool Start(CUmemorytype type, uint64_t host, uint64_t device, uint64_t* start) {
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return false;
  *start = type == CU_MEMORYTYPE_HOST ? host : device;
  return true;
}

// D: a descriptor of a 2D copy of any version.
template <typename D>
CUresult Copy2D(const D* d, CUstream stream, bool synchronous) {
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d->srcMemoryType == CU_MEMORYTYPE_ARRAY || d->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return Unsupported("cuMemcpy2D");
  Transfer t;
  if (!Start(d->srcMemoryType, Host(d->srcHost), d->srcDevice, &t.source) ||
      !Start(d->dstMemoryType, Host(d->dstHost), d->dstDevice, &t.destination)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  t.box = {d->WidthInBytes, d->Height, 1};
  t.source_pitch = d->srcPitch != 0 ? d->srcPitch : d->WidthInBytes;
  t.destination_pitch = d->dstPitch != 0 ? d->dstPitch : d->WidthInBytes;
  if (t.source != 0) t.source += d->srcY * t.source_pitch + d->srcXInBytes;
  if (t.destination != 0) t.destination += d->dstY * t.destination_pitch + d->dstXInBytes;
  return RunTransfer(t, stream, synchronous);
}

template <typename D>
CUresult Copy3D(const D* d, CUstream stream, bool synchronous) {
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d->srcMemoryType == CU_MEMORYTYPE_ARRAY || d->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return Unsupported("cuMemcpy3D");
  if (d->srcLOD != 0 || d->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  Transfer t;
  if (!Start(d->srcMemoryType, Host(d->srcHost), d->srcDevice, &t.source) ||
      !Start(d->dstMemoryType, Host(d->dstHost), d->dstDevice, &t.destination)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  t.box = {d->WidthInBytes, d->Height, d->Depth};
  t.source_pitch = d->srcPitch != 0 ? d->srcPitch : d->WidthInBytes;
  t.destination_pitch = d->dstPitch != 0 ? d->dstPitch : d->WidthInBytes;
  t.source_slice = t.source_pitch * (d->srcHeight != 0 ? d->srcHeight : d->Height);
  t.destination_slice = t.destination_pitch * (d->dstHeight != 0 ? d->dstHeight : d->Height);
  if (t.source != 0) t.source += d->srcZ * t.source_slice + d->srcY * t.source_pitch + d->srcXInBytes;
  if (t.destination != 0)
    t.destination += d->dstZ * t.destination_slice + d->dstY * t.destination_pitch + d->dstXInBytes;
  return RunTransfer(t, stream, synchronous);
}

uint32_t Repeat(unsigned char value) { return value * 0x01010101u; }
uint32_t Repeat(unsigned short value) { return value * 0x00010001u; }
uint32_t Repeat(unsigned int value) { return value; }

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
  if (FromHandle<Context>(to_context) == nullptr || FromHandle<Context>(from_context) == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), nullptr, true);
}

CUresult api::cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                size_t bytes, CUstream stream) {
  if (FromHandle<Context>(to_context) == nullptr || FromHandle<Context>(from_context) == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  return RunTransfer(Line(to, from, bytes, Transfer::kDestination | Transfer::kSource), stream, false);
}

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

CUresult api::cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return RunFill(to, Repeat(value), 1, 0, count, 1, nullptr);
}

CUresult api::cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return RunFill(to, Repeat(value), 1, pitch, width, height, nullptr);
}

CUresult api::cuMemsetD8(CUdeviceptr_v1 to, unsigned char value, unsigned int count) {
  return RunFill(to, Repeat(value), 1, 0, count, 1, nullptr);
}

CUresult api::cuMemsetD2D8(CUdeviceptr_v1 to, unsigned int pitch, unsigned char value, unsigned int width,
                           unsigned int height) {
  return RunFill(to, Repeat(value), 1, pitch, width, height, nullptr);
}

CUresult api::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return RunFill(to, Repeat(value), 1, 0, count, 1, stream);
}

CUresult api::cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                                CUstream stream) {
  return RunFill(to, Repeat(value), 1, pitch, width, height, stream);
}

CUresult api::cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return RunFill(to, Repeat(value), 2, 0, count, 1, nullptr);
}

CUresult api::cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return RunFill(to, Repeat(value), 2, pitch, width, height, nullptr);
}

CUresult api::cuMemsetD16(CUdeviceptr_v1 to, unsigned short value, unsigned int count) {
  return RunFill(to, Repeat(value), 2, 0, count, 1, nullptr);
}

CUresult api::cuMemsetD2D16(CUdeviceptr_v1 to, unsigned int pitch, unsigned short value, unsigned int width,
                            unsigned int height) {
  return RunFill(to, Repeat(value), 2, pitch, width, height, nullptr);
}

CUresult api::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return RunFill(to, Repeat(value), 2, 0, count, 1, stream);
}

CUresult api::cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                                 CUstream stream) {
  return RunFill(to, Repeat(value), 2, pitch, width, height, stream);
}

CUresult api::cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return RunFill(to, Repeat(value), 4, 0, count, 1, nullptr);
}

CUresult api::cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height) {
  return RunFill(to, Repeat(value), 4, pitch, width, height, nullptr);
}

CUresult api::cuMemsetD32(CUdeviceptr_v1 to, unsigned int value, unsigned int count) {
  return RunFill(to, Repeat(value), 4, 0, count, 1, nullptr);
}

CUresult api::cuMemsetD2D32(CUdeviceptr_v1 to, unsigned int pitch, unsigned int value, unsigned int width,
                            unsigned int height) {
  return RunFill(to, Repeat(value), 4, pitch, width, height, nullptr);
}

CUresult api::cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return RunFill(to, Repeat(value), 4, 0, count, 1, stream);
}

CUresult api::cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                                 CUstream stream) {
  return RunFill(to, Repeat(value), 4, pitch, width, height, stream);
}

}  // namespace mete::emulator::cuda
