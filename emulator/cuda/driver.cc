#include "emulator/cuda/driver.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator/cuda/mig_view.h"

namespace mete::emulator::cuda {
namespace {

int g_marker;  // lies in this library: its address tells where the library's file is

bool ConnectToNode(Client** client, std::string* why) {
  const std::string root = NodeRootOf(&g_marker);
  if (root.empty()) {
    *why = "this libcuda.so.1 does not lie in the driver root of an emulated node that is up; run `mete emulate up`";
    return false;
  }
  return Client::Connect(root.c_str(), client, why);
}

std::atomic<Driver::ClientFactory> g_factory{&ConnectToNode};
std::mutex g_init_mutex;
std::atomic<bool> g_forked{false};

ptx::Budget BudgetFromEnvironment() {
  ptx::Budget budget;
  // METE_EMULATOR_BUDGET=WHOLE[,SAMPLE[,WARP]]: lane instructions of a launch that is executed whole, of a sample, of
  // one warp.
  const char* text = getenv("METE_EMULATOR_BUDGET");
  uint64_t* fields[] = {&budget.whole_instructions, &budget.sample_instructions, &budget.warp_limit};
  for (uint64_t* field : fields) {
    if (text == nullptr) break;
    char* end = nullptr;
    const uint64_t value = strtoull(text, &end, 10);
    if (end == text || (*end != ',' && *end != '\0')) break;
    *field = value;
    text = *end == ',' ? end + 1 : nullptr;
  }
  return budget;
}

}  // namespace

std::atomic<Driver*> Driver::instance_{nullptr};

void Driver::SetClientFactory(ClientFactory factory) { g_factory.store(factory); }

bool Driver::Traced() {
  const char* trace = getenv("METE_EMULATOR_TRACE");
  return trace != nullptr && strcmp(trace, "1") == 0;
}

Driver::Driver(Client* client) : client_(client), budget_(BudgetFromEnvironment()) {
  content_.SetClient(client);
  const MigView mig(client);
  for (const VisibleDevice& visible : VisibleDevices(client->Gpus(), mig.mode(), mig.seats(),
                                                     getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"))) {
    auto device = std::make_unique<Device>();
    device->gpu = visible.gpu;
    device->mig = visible.mig;
    device->info = visible.mig ? mig.InfoOf(*visible.mig) : client->Gpus()[visible.gpu];
    devices_.push_back(std::move(device));
  }
  const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
  launch_blocking_ = blocking != nullptr && strcmp(blocking, "1") == 0;
}

CUresult Driver::Init() {
  if (g_forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  if (Get() != nullptr) return CUDA_SUCCESS;
  std::lock_guard lock(g_init_mutex);
  if (Get() != nullptr) return CUDA_SUCCESS;
  Client* client = nullptr;
  std::string why;
  if (!g_factory.load()(&client, &why)) {
    if (Traced()) fprintf(stderr, "emulated libcuda: %s\n", why.c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  auto* driver = new Driver(client);
  if (driver->devices_.empty()) {
    delete driver;
    delete client;
    return CUDA_ERROR_NO_DEVICE;
  }
  pthread_atfork(nullptr, nullptr, &Driver::ForkedChild);
  if (Traced()) atexit(&Driver::Dump);
  instance_.store(driver, std::memory_order_release);
  return CUDA_SUCCESS;
}

void Driver::ForkedChild() {
  if (Get() == nullptr) return;
  g_forked.store(true);
  instance_.store(nullptr, std::memory_order_release);  // every call answers "not initialized" from here on
}

void Driver::Dump() {
  Driver* driver = Get();
  if (driver == nullptr) return;
  const Counters& c = driver->counters_;
  const ContentCounters& m = driver->content_.counters();
  fprintf(stderr,
          "emulated libcuda: launches exact %llu, extrapolated %llu, cached %llu, unbounded %llu; timed only %llu; "
          "content backed %llu bytes, dropped %llu bytes, undefined reads %llu\n",
          static_cast<unsigned long long>(c.exact), static_cast<unsigned long long>(c.extrapolated),
          static_cast<unsigned long long>(c.cached), static_cast<unsigned long long>(c.unbounded),
          static_cast<unsigned long long>(c.timed_only), static_cast<unsigned long long>(m.backed_bytes),
          static_cast<unsigned long long>(m.dropped_bytes), static_cast<unsigned long long>(m.undefined_reads));
}

Result Driver::CreateContext(const Device& device, uint64_t* context) {
  return device.mig
             ? client_->CreateMigContext(device.gpu, device.mig->gpu_instance, device.mig->compute_instance, context)
             : client_->CreateContext(device.gpu, context);
}

Result Driver::MemoryInfo(const Device& device, uint64_t* free_bytes, uint64_t* total_bytes) {
  return device.mig ? client_->MigMemoryInfo(device.gpu, device.mig->gpu_instance, free_bytes, total_bytes)
                    : client_->MemoryInfo(device.gpu, free_bytes, total_bytes);
}

int Driver::OrdinalOf(const Device* device) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].get() == device) return static_cast<int>(i);
  }
  return -1;
}

CUresult FromResult(Result result) {
  switch (result) {
    case Result::kOk: return CUDA_SUCCESS;
    case Result::kOutOfMemory: return CUDA_ERROR_OUT_OF_MEMORY;
    case Result::kNotSupported: return CUDA_ERROR_NOT_SUPPORTED;
    case Result::kNoSuchObject:
    case Result::kInsufficient:
    case Result::kInvalid: return CUDA_ERROR_INVALID_VALUE;
    case Result::kRefused:
    case Result::kInUse: return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case Result::kNotOwner: return CUDA_ERROR_NOT_PERMITTED;
    case Result::kContextDead: return CUDA_ERROR_LAUNCH_FAILED;
    case Result::kDeviceLost: return CUDA_ERROR_UNKNOWN;
    case Result::kLost: return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult Unsupported(const char* symbol) {
  // A look-up through cuGetExportTable asks for the driver's private tables; none is known here, and none is made up.
  if (strcmp(symbol, "cuGetExportTable") == 0) return CUDA_ERROR_NOT_FOUND;
  if (Driver* driver = Driver::Get()) driver->client().CountUnsupportedCall(symbol);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace mete::emulator::cuda
