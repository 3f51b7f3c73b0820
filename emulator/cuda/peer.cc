// Peer access: which GPU can use another's memory, and which context may. A kernel that uses memory of a GPU that its
// context has no access to fails as on any other illegal address.
#include <string_view>
#include <vector>

#include "api.h"
#include "emulator/cuda/context.h"

namespace mete::emulator::cuda {
namespace {

CUresult FindPair(CUdevice dev, CUdevice peer, Device** device, Device** other) {
  if (CUresult error = FindDevice(dev, device)) return error;
  return FindDevice(peer, other);
}

}  // namespace

// Data-centre boards of one architecture reach each other, over NVLink or the bus; NVIDIA's driver switches that off
// for GeForce boards, and does not offer it between architectures. A MIG device reaches nothing: the MIG profiles of
// all boards here say that they have no P2P (data/mig.yaml).
bool CanReach(const Device& device, const Device& other) {
  const std::string_view from = device.info.name, to = other.info.name;
  return &device != &other && !device.mig && !other.mig && device.info.compute_major == other.info.compute_major &&
         from.find("GeForce") == std::string_view::npos && to.find("GeForce") == std::string_view::npos;
}

namespace {

CUresult FindPeer(CUcontext handle, Context** context, Context** peer) {
  if (CUresult error = Current(context)) return error;
  *peer = FromHandle<Context>(handle);
  if (*peer == nullptr || *peer == *context) return CUDA_ERROR_INVALID_CONTEXT;
  return (*peer)->alive.load() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// With the context's mutex held.
void Recount(Context* context) {
  uint64_t reach = 1ull << Driver::Get()->OrdinalOf(context->device);
  for (const Context* peer : context->peers) reach |= 1ull << Driver::Get()->OrdinalOf(peer->device);
  context->reach.store(reach);
}

}  // namespace

void ForgetPeer(Context* gone) {
  Driver* driver = Driver::Get();
  std::vector<Context*> contexts;
  {
    std::lock_guard lock(driver->contexts_mutex);
    contexts = driver->contexts;
  }
  for (Context* context : contexts) {
    if (context == gone || !context->alive.load()) continue;
    std::lock_guard lock(context->mutex);
    if (context->peers.erase(gone) != 0) Recount(context);
  }
}

CUresult api::cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  Device *device = nullptr, *other = nullptr;
  if (CUresult error = FindPair(dev, peer, &device, &other)) return error;
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = CanReach(*device, *other) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer) {
  Device *device = nullptr, *other = nullptr;
  if (CUresult error = FindPair(dev, peer, &device, &other)) return error;
  if (device == other) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = CanReach(*device, *other) ? 1 : 0;
      return CUDA_SUCCESS;
    // Atomics between GPUs need NVLink, which the emulated node does not have.
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: *value = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult api::cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
  Context *context = nullptr, *peer = nullptr;
  if (CUresult error = FindPeer(handle, &context, &peer)) return error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (context->device != peer->device && !CanReach(*context->device, *peer->device))
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  std::lock_guard lock(context->mutex);
  if (!context->peers.insert(peer).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  Recount(context);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxDisablePeerAccess(CUcontext handle) {
  Context *context = nullptr, *peer = nullptr;
  if (CUresult error = FindPeer(handle, &context, &peer)) return error;
  std::lock_guard lock(context->mutex);
  if (context->peers.erase(peer) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  Recount(context);
  return CUDA_SUCCESS;
}

}  // namespace mete::emulator::cuda
