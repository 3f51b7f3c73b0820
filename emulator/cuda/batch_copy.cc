// Batches of copies: each is an ordinary copy, in the order given, which the documentation leaves open.
#include "api.h"
#include "emulator/cuda/context.h"
#include "emulator/cuda/copy.h"
#include "emulator/cuda/list.h"
#include "emulator/cuda/module.h"

namespace mete::emulator::cuda {
namespace {

constexpr size_t kNone = ~size_t{0};

// *failed: the copy at fault, or none in particular.
CUresult Batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
               size_t* indices, size_t attribute_count, size_t* failed, CUstream stream) {
  *failed = kNone;
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (count == 0 || !IsList(to, count) || !IsList(from, count) || !IsList(sizes, count) || attribute_count == 0 ||
      attribute_count > count || !IsList(attributes, attribute_count) || !IsList(indices, attribute_count) ||
      indices[0] != 0 || stream == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < attribute_count; ++i) {
    if (i != 0 && (indices[i] <= indices[i - 1] || indices[i] >= count)) return CUDA_ERROR_INVALID_VALUE;
    if (attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    *failed = i;
    if (sizes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult error = RunTransfer(Line(to[i], from[i], sizes[i], 0), stream, false)) return error;
  }
  *failed = kNone;
  return CUDA_SUCCESS;
}

// Bytes of an element of the operand's array; 1 for linear memory, 0 for no operand.
uint64_t ElementOf(const CUmemcpy3DOperand& operand) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) return 1;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return 0;
  auto* array = FromHandle<Array>(operand.op.array.array);
  return array == nullptr ? 0 : array->element;
}

// Lengths are in elements of the array, if there is one.
CUresult Describe(const CUDA_MEMCPY3D_BATCH_OP& op, CUDA_MEMCPY3D* d) {
  const uint64_t from_element = ElementOf(op.src), to_element = ElementOf(op.dst);
  if (from_element == 0 || to_element == 0 || op.flags > 1) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t element = std::max(from_element, to_element);
  const uint64_t limit = (1ull << 46) / element;
  if (op.extent.width > limit || op.extent.height > limit || op.extent.depth > limit) return CUDA_ERROR_INVALID_VALUE;
  for (const CUmemcpy3DOperand& side : {op.src, op.dst}) {
    const bool array = side.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
    if ((array ? side.op.array.offset.x : side.op.ptr.rowLength) > limit) return CUDA_ERROR_INVALID_VALUE;
  }
  d->WidthInBytes = op.extent.width * element;
  d->Height = op.extent.height;
  d->Depth = op.extent.depth;
  if (op.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    d->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    d->srcArray = op.src.op.array.array;
    d->srcXInBytes = op.src.op.array.offset.x * element;
    d->srcY = op.src.op.array.offset.y;
    d->srcZ = op.src.op.array.offset.z;
  } else {
    d->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    d->srcDevice = op.src.op.ptr.ptr;
    d->srcPitch = op.src.op.ptr.rowLength * element;
    d->srcHeight = op.src.op.ptr.layerHeight;
  }
  if (op.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    d->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    d->dstArray = op.dst.op.array.array;
    d->dstXInBytes = op.dst.op.array.offset.x * element;
    d->dstY = op.dst.op.array.offset.y;
    d->dstZ = op.dst.op.array.offset.z;
  } else {
    d->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    d->dstDevice = op.dst.op.ptr.ptr;
    d->dstPitch = op.dst.op.ptr.rowLength * element;
    d->dstHeight = op.dst.op.ptr.layerHeight;
  }
  return CUDA_SUCCESS;
}

CUresult Batch3D(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, size_t* failed, unsigned long long flags,
                 CUstream stream) {
  *failed = kNone;
  Context* context = nullptr;
  if (CUresult error = Current(&context)) return error;
  if (count == 0 || !IsList(list, count) || flags != 0 || stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    *failed = i;
    CUDA_MEMCPY3D d{};
    if (CUresult error = Describe(list[i], &d)) return error;
    if (CUresult error = RunCopy(d, stream, false)) return error;
  }
  *failed = kNone;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count,
                                 size_t* failed_out, CUstream stream) {
  size_t failed = kNone;
  const CUresult result = Batch(to, from, sizes, count, attributes, indices, attribute_count, &failed, stream);
  if (failed_out != nullptr) *failed_out = failed;
  return result;
}

CUresult api::cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                    CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count,
                                    CUstream stream) {
  size_t failed = kNone;
  return Batch(to, from, sizes, count, attributes, indices, attribute_count, &failed, stream);
}

CUresult api::cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, size_t* failed_out,
                                   unsigned long long flags, CUstream stream) {
  size_t failed = kNone;
  const CUresult result = Batch3D(count, list, &failed, flags, stream);
  if (failed_out != nullptr) *failed_out = failed;
  return result;
}

CUresult api::cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long flags,
                                      CUstream stream) {
  size_t failed = kNone;
  return Batch3D(count, list, &failed, flags, stream);
}

}  // namespace mete::emulator::cuda
