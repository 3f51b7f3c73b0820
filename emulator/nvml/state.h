// What one process keeps of the emulated NVML: the connection to its node's engine while NVML is initialised, the
// device handles, and how every entry point gets at them. libc and the C++ runtime only.
//
// Ownership: the connection is shared by the calls in progress; the last nvmlShutdown drops it. Thread rule: any
// thread. After fork() the child connects anew with its next call; the parent's connection is left alone. Errors:
// NVML's codes.
#ifndef METE_EMULATOR_NVML_STATE_H_
#define METE_EMULATOR_NVML_STATE_H_

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "emulator/engine/client.h"
#include "emulator/nvml/sampler.h"
#include "nvml/abi.h"

namespace mete::emulator {

// Newest handles a node can have; the engine has fewer GPUs.
inline constexpr unsigned kMaxNvmlGpus = 64;

// One connection of this process.
struct NvmlSession {
  std::unique_ptr<Client> client;
  ProcessSampler sampler;
  const std::vector<GpuInfo>& gpus() const { return client->Gpus(); }
};

// Connects to the engine of the node that this library is a part of. Defined in connect.cc; tests define their own.
bool ConnectToNode(std::unique_ptr<Client>* client, std::string* why);

nvml::abi::nvmlReturn_t NvmlInitialise(unsigned flags);
nvml::abi::nvmlReturn_t NvmlShutdown();

// The session, or null and the code to answer with.
std::shared_ptr<NvmlSession> CurrentNvmlSession(nvml::abi::nvmlReturn_t* code);

// What every name without behaviour answers. `counted`: the engine is told, since a client may miss it; not for what a
// real board or driver would refuse too. `device`: the call's first argument where that is one.
inline const void* const kNoDeviceArgument = &kMaxNvmlGpus;
nvml::abi::nvmlReturn_t NvmlNotSupported(const char* symbol, bool counted, const void* device) noexcept;

nvml::abi::nvmlDevice_t NvmlHandle(unsigned gpu);
// False: no handle of this library, or of a GPU that the node does not have.
bool NvmlGpuOf(const NvmlSession& session, nvml::abi::nvmlDevice_t handle, unsigned* gpu);
// What a call about GPUs answers to another handle: NOT_SUPPORTED to a MIG device's, INVALID_ARGUMENT to nobody's.
nvml::abi::nvmlReturn_t NvmlNotAGpu(NvmlSession& session, nvml::abi::nvmlDevice_t handle);

nvml::abi::nvmlReturn_t FromResult(Result result);

// Copies `text` with its terminator into a caller's buffer of `length` bytes.
nvml::abi::nvmlReturn_t CopyText(const std::string& text, char* buffer, unsigned length);

// Runs body(session), or body(session, gpu), as an entry point does: no exception leaves the library.
template <typename Body>
nvml::abi::nvmlReturn_t WithNode(Body body) noexcept {
  try {
    nvml::abi::nvmlReturn_t code = nvml::abi::NVML_SUCCESS;
    std::shared_ptr<NvmlSession> session = CurrentNvmlSession(&code);
    return session == nullptr ? code : body(*session);
  } catch (const std::bad_alloc&) {
    return nvml::abi::NVML_ERROR_MEMORY;
  } catch (...) {
    return nvml::abi::NVML_ERROR_UNKNOWN;
  }
}

template <typename Body>
nvml::abi::nvmlReturn_t WithGpu(nvml::abi::nvmlDevice_t device, Body body) noexcept {
  return WithNode([&](NvmlSession& session) {
    unsigned gpu = 0;
    return NvmlGpuOf(session, device, &gpu) ? body(session, gpu) : NvmlNotAGpu(session, device);
  });
}

// The engine's snapshot of the GPU goes to body(state).
template <typename Body>
nvml::abi::nvmlReturn_t WithState(nvml::abi::nvmlDevice_t device, Body body) noexcept {
  return WithGpu(device, [&](NvmlSession& session, unsigned gpu) {
    GpuState state = {};
    Result result = session.client->State(gpu, &state);
    return result == Result::kOk ? body(session.gpus()[gpu], state) : FromResult(result);
  });
}

}  // namespace mete::emulator

#endif  // METE_EMULATOR_NVML_STATE_H_
