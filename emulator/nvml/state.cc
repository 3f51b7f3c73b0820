#include "emulator/nvml/state.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>

namespace mete::emulator {

namespace {

using nvml::abi::nvmlDevice_t;
using nvml::abi::nvmlReturn_t;

struct Process {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  unsigned initialised = 0;  // nvmlInit calls without their nvmlShutdown
  pid_t owner = 0;           // of the session
  std::shared_ptr<NvmlSession> session;
};

// Never destroyed: a stranger's atexit handlers may still call NVML.
Process& TheProcess() {
  static Process* process = new Process;
  return *process;
}

class Lock {
 public:
  Lock() { pthread_mutex_lock(&TheProcess().mutex); }
  ~Lock() { pthread_mutex_unlock(&TheProcess().mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

// A fork in another thread must not leave the child with our mutex held for ever.
void InstallForkHandlers() {
  static int once =
      pthread_atfork([] { pthread_mutex_lock(&TheProcess().mutex); }, [] { pthread_mutex_unlock(&TheProcess().mutex); },
                     [] { pthread_mutex_unlock(&TheProcess().mutex); });
  (void)once;
}

// With the lock held.
nvmlReturn_t Connect(Process& process) {
  if (process.session != nullptr && process.owner != getpid()) {
    // The parent's connection: ours only as a copy. Destroying it here would speak on the parent's socket.
    new std::shared_ptr<NvmlSession>(std::move(process.session));
    process.session = nullptr;
  }
  if (process.session != nullptr) return nvml::abi::NVML_SUCCESS;
  auto session = std::make_shared<NvmlSession>();
  std::string why;
  if (!ConnectToNode(&session->client, &why)) return nvml::abi::NVML_ERROR_DRIVER_NOT_LOADED;
  process.session = std::move(session);
  process.owner = getpid();
  return nvml::abi::NVML_SUCCESS;
}

// Handles are addresses in this array, so that they stay valid over shutdown, initialisation and fork.
char g_handles[kMaxNvmlGpus];

}  // namespace

nvmlReturn_t NvmlInitialise(unsigned flags) {
  constexpr unsigned kKnown =
      nvml::abi::NVML_INIT_FLAG_NO_GPUS | nvml::abi::NVML_INIT_FLAG_NO_ATTACH | nvml::abi::NVML_INIT_FLAG_FORCE_INIT;
  if ((flags & ~kKnown) != 0) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
  InstallForkHandlers();
  Lock lock;
  Process& process = TheProcess();
  nvmlReturn_t code = Connect(process);
  if (code == nvml::abi::NVML_SUCCESS) ++process.initialised;
  return code;
}

nvmlReturn_t NvmlShutdown() {
  std::shared_ptr<NvmlSession> last;  // ends after the lock, when the calls in progress have ended
  Lock lock;
  Process& process = TheProcess();
  if (process.initialised == 0) return nvml::abi::NVML_ERROR_UNINITIALIZED;
  if (--process.initialised == 0 && process.owner == getpid()) last.swap(process.session);
  return nvml::abi::NVML_SUCCESS;
}

std::shared_ptr<NvmlSession> CurrentNvmlSession(nvmlReturn_t* code) {
  Lock lock;
  Process& process = TheProcess();
  if (process.initialised == 0) {
    *code = nvml::abi::NVML_ERROR_UNINITIALIZED;
    return nullptr;
  }
  *code = Connect(process);
  return *code == nvml::abi::NVML_SUCCESS ? process.session : nullptr;
}

nvmlReturn_t NvmlNotSupported(const char* symbol, bool counted, const void* device) noexcept {
  return WithNode([&](NvmlSession& session) {
    unsigned gpu = 0;
    const auto handle = static_cast<nvmlDevice_t>(const_cast<void*>(device));
    if (device != kNoDeviceArgument && !NvmlGpuOf(session, handle, &gpu)) return NvmlNotAGpu(session, handle);
    if (counted) session.client->CountUnsupportedCall(symbol);
    return nvml::abi::NVML_ERROR_NOT_SUPPORTED;
  });
}

nvmlDevice_t NvmlHandle(unsigned gpu) { return reinterpret_cast<nvmlDevice_t>(&g_handles[gpu]); }

bool NvmlGpuOf(const NvmlSession& session, nvmlDevice_t handle, unsigned* gpu) {
  auto address = reinterpret_cast<uintptr_t>(handle), first = reinterpret_cast<uintptr_t>(g_handles);
  if (address < first || address - first >= kMaxNvmlGpus || address - first >= session.gpus().size()) return false;
  *gpu = static_cast<unsigned>(address - first);
  return true;
}

nvmlReturn_t FromResult(Result result) {
  switch (result) {
    case Result::kOk: return nvml::abi::NVML_SUCCESS;
    case Result::kOutOfMemory: return nvml::abi::NVML_ERROR_INSUFFICIENT_RESOURCES;
    case Result::kNoSuchObject: return nvml::abi::NVML_ERROR_NOT_FOUND;
    case Result::kRefused:
    case Result::kNotOwner: return nvml::abi::NVML_ERROR_NO_PERMISSION;
    case Result::kInUse: return nvml::abi::NVML_ERROR_IN_USE;
    case Result::kInsufficient: return nvml::abi::NVML_ERROR_INSUFFICIENT_RESOURCES;
    case Result::kNotSupported: return nvml::abi::NVML_ERROR_NOT_SUPPORTED;
    case Result::kInvalid: return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
    case Result::kDeviceLost: return nvml::abi::NVML_ERROR_GPU_IS_LOST;
    case Result::kLost: return nvml::abi::NVML_ERROR_DRIVER_NOT_LOADED;  // the engine is this node's kernel driver
    case Result::kContextDead: break;
  }
  return nvml::abi::NVML_ERROR_UNKNOWN;
}

nvmlReturn_t CopyText(const std::string& text, char* buffer, unsigned length) {
  if (buffer == nullptr) return nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() + 1 > length) return nvml::abi::NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return nvml::abi::NVML_SUCCESS;
}

}  // namespace mete::emulator
