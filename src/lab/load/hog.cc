// hog: allocates until it is refused, by one of the driver's allocating calls; idle: holds what it was told to hold.
#include <algorithm>
#include <functional>

#include "lab/load/session.h"
#include "lab/load/workloads.h"

namespace mete::lab {

namespace {

constexpr uint64_t kGranule = 2 * kMiB;  // the driver's step; below it a refusal says nothing
constexpr uint64_t kRow = 64 * 1024;     // bytes of a row of the arrays: 4096 elements of 16 bytes

// Takes about `bytes` and says how many it took; the status is the driver's refusal.
using Allocate = std::function<StatusOr<uint64_t>(uint64_t bytes)>;

Status Missing(const std::string& api) {
  return Lacks("this driver has not all calls of --api {}; take another, or a newer driver", api);
}

CUmemLocation On(CUdevice device) {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

StatusOr<uint64_t> AllocateVirtual(const Driver& driver, CUdevice device, uint64_t bytes) {
  CUmemAllocationProp property = {};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = On(device);
  size_t granularity = 0;
  METE_CUDA(driver, cuMemGetAllocationGranularity, &granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  granularity = std::max<size_t>(granularity, 1);
  uint64_t size = (bytes + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle = 0;
  METE_CUDA(driver, cuMemCreate, &handle, size, &property, 0);
  CUdeviceptr address = 0;
  METE_CUDA(driver, cuMemAddressReserve, &address, size, 0, 0, 0);
  METE_CUDA(driver, cuMemMap, address, size, 0, handle, 0);
  CUmemAccessDesc access = {};
  access.location = On(device);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  METE_CUDA(driver, cuMemSetAccess, address, size, &access, 1);
  METE_CUDA(driver, cuMemRelease, handle);  // the mapping keeps it
  return size;
}

CUDA_ARRAY3D_DESCRIPTOR Shape(uint64_t width, uint64_t height, uint64_t depth) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  shape.Width = width;
  shape.Height = height;
  shape.Depth = depth;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 4;
  return shape;
}

StatusOr<Allocate> MakeAllocate(const LoadOptions& options, const Session& session) {
  const Driver& driver = session.driver();
  CUdevice device = session.device();
  const std::string& api = options.api;
  if (api == "alloc") {
    return Allocate([&driver](uint64_t bytes) -> StatusOr<uint64_t> {
      CUdeviceptr pointer = 0;
      METE_CUDA(driver, cuMemAlloc_v2, &pointer, bytes);
      return bytes;
    });
  }
  if (api == "pitch") {
    if (driver.cuMemAllocPitch_v2 == nullptr) return Missing(api);
    return Allocate([&driver](uint64_t bytes) -> StatusOr<uint64_t> {
      CUdeviceptr pointer = 0;
      size_t pitch = 0, rows = std::max<size_t>(1, bytes / kRow);
      METE_CUDA(driver, cuMemAllocPitch_v2, &pointer, &pitch, kRow, rows, 16);
      return pitch * rows;
    });
  }
  if (api == "managed") {
    if (driver.cuMemAllocManaged == nullptr) return Missing(api);
    return Allocate([&driver](uint64_t bytes) -> StatusOr<uint64_t> {
      CUdeviceptr pointer = 0;
      METE_CUDA(driver, cuMemAllocManaged, &pointer, bytes, CU_MEM_ATTACH_GLOBAL);
      return bytes;
    });
  }
  if (api == "async") {
    if (driver.cuMemAllocAsync == nullptr) return Missing(api);
    METE_ASSIGN_OR_RETURN(CUstream stream, session.Stream());
    return Allocate([&driver, stream](uint64_t bytes) -> StatusOr<uint64_t> {
      CUdeviceptr pointer = 0;
      METE_CUDA(driver, cuMemAllocAsync, &pointer, bytes, stream);
      METE_CUDA(driver, cuStreamSynchronize, stream);
      return bytes;
    });
  }
  if (api == "pool") {
    if (driver.cuMemPoolCreate == nullptr || driver.cuMemAllocFromPoolAsync == nullptr) return Missing(api);
    METE_ASSIGN_OR_RETURN(CUstream stream, session.Stream());
    CUmemPoolProps property = {};
    property.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location = On(device);
    CUmemoryPool pool = nullptr;
    METE_CUDA(driver, cuMemPoolCreate, &pool, &property);
    return Allocate([&driver, stream, pool](uint64_t bytes) -> StatusOr<uint64_t> {
      CUdeviceptr pointer = 0;
      METE_CUDA(driver, cuMemAllocFromPoolAsync, &pointer, bytes, pool, stream);
      METE_CUDA(driver, cuStreamSynchronize, stream);
      return bytes;
    });
  }
  if (api == "vmm") {
    if (driver.cuMemGetAllocationGranularity == nullptr || driver.cuMemCreate == nullptr ||
        driver.cuMemMap == nullptr || driver.cuMemAddressReserve == nullptr || driver.cuMemSetAccess == nullptr ||
        driver.cuMemRelease == nullptr) {
      return Missing(api);
    }
    return Allocate([&driver, device](uint64_t bytes) { return AllocateVirtual(driver, device, bytes); });
  }
  if (api == "array") {
    if (driver.cuArrayCreate_v2 == nullptr) return Missing(api);
    return Allocate([&driver](uint64_t bytes) -> StatusOr<uint64_t> {
      CUDA_ARRAY_DESCRIPTOR shape = {};
      shape.Width = kRow / 16;
      shape.Height = std::max<size_t>(1, bytes / kRow);
      shape.Format = CU_AD_FORMAT_FLOAT;
      shape.NumChannels = 4;
      CUarray array = nullptr;
      METE_CUDA(driver, cuArrayCreate_v2, &array, &shape);
      return kRow * shape.Height;
    });
  }
  if (api == "array3d") {
    if (driver.cuArray3DCreate_v2 == nullptr) return Missing(api);
    return Allocate([&driver](uint64_t bytes) -> StatusOr<uint64_t> {
      // Slices of 512 KiB: 512 by 64 elements.
      CUDA_ARRAY3D_DESCRIPTOR shape = Shape(512, 64, std::max<uint64_t>(1, bytes >> 19));
      CUarray array = nullptr;
      METE_CUDA(driver, cuArray3DCreate_v2, &array, &shape);
      return shape.Depth << 19;
    });
  }
  if (api == "mipmap") {
    if (driver.cuMipmappedArrayCreate == nullptr) return Missing(api);
    return Allocate([&driver](uint64_t bytes) -> StatusOr<uint64_t> {
      CUDA_ARRAY3D_DESCRIPTOR shape = Shape(kRow / 16, std::max<uint64_t>(4, bytes * 3 / 4 / kRow), 0);
      CUmipmappedArray array = nullptr;
      METE_CUDA(driver, cuMipmappedArrayCreate, &array, &shape, 3);
      uint64_t level = kRow * shape.Height;
      return level + level / 4 + level / 16;
    });
  }
  return Usage("--api {}: there is no such call", api);
}

}  // namespace

const std::vector<std::string>& HogApis() {
  static const std::vector<std::string> apis = {"alloc", "pitch", "managed", "async", "pool",
                                                "vmm",   "array", "array3d", "mipmap"};
  return apis;
}

Status RunHog(const LoadOptions& options, const Emit& emit) {
  METE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(options));
  const Driver& driver = session->driver();
  METE_ASSIGN_OR_RETURN(Allocate allocate, MakeAllocate(options, *session));
  METE_RETURN_IF_ERROR(session->WaitForStart(options));
  size_t free_before = 0, total = 0;
  METE_CUDA(driver, cuMemGetInfo_v2, &free_before, &total);

  uint64_t bytes = 0, blocks = 0, chunk = std::max<uint64_t>(1, options.chunk.count);
  Status refusal = OkStatus(), last = OkStatus();
  // Managed memory may be given beyond what the card has: one granule more is asked for, and no further.
  uint64_t most = options.api == "managed" ? total + kGranule : UINT64_MAX;
  while (!StopAsked()) {
    if (chunk > most - std::min(most, bytes)) {
      if (chunk <= kGranule) break;
      chunk = std::max(kGranule, chunk / 2);
      continue;
    }
    StatusOr<uint64_t> got = allocate(chunk);
    if (got.ok()) {
      bytes += *got;
      ++blocks;
      continue;
    }
    if (!CudaFailure(got.status())) return got.status();
    last = got.status();
    if (refusal.ok()) refusal = last;
    if (chunk <= kGranule || Message(last).find("OUT_OF_MEMORY") == std::string::npos) break;
    chunk = std::max(kGranule, chunk / 2);  // fill up what is left
  }
  size_t free_after = 0;
  driver.cuMemGetInfo_v2(&free_after, &total);

  bool refused = !last.ok() && Message(last).find("OUT_OF_MEMORY") != std::string::npos;
  Json result = session->Result("hog");
  result["api"] = options.api;
  result["lookup"] = options.lookup == Lookup::kDlsym ? "dlsym" : "proc-address";
  result["bytes"] = bytes;
  result["blocks"] = blocks;
  result["error"] = last.ok() ? Json(nullptr) : Json(refused ? "CUDA_ERROR_OUT_OF_MEMORY" : Message(last));
  result["error_code"] = last.ok() ? 0 : refused ? 2 : -1;
  result["free"] = free_after;
  result["total"] = total;
  emit(result);
  if (!last.ok() && !refused) return last;
  if (options.hold > 0)
    SleepUntil(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.hold)));
  return OkStatus();
}

Status RunIdle(const LoadOptions& options, const Emit& emit) {
  METE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Open(options));
  const Driver& driver = session->driver();
  CUdeviceptr block = 0;
  METE_CUDA(driver, cuMemAlloc_v2, &block, options.memory.count);
  METE_RETURN_IF_ERROR(session->WaitForStart(options));
  Json result = session->Result("idle");
  result["bytes"] = options.memory.count;
  emit(result);
  SleepUntil(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds)));
  return OkStatus();
}

}  // namespace mete::lab
