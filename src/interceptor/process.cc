#include "interceptor/process.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include <mutex>
#include <new>

#include "ledger/account.h"

namespace mete::interceptor {

constinit std::atomic<Process*> process{nullptr};

namespace {

constexpr uint64_t kLookAfterNs = 500'000'000;  // a heartbeat this old: is the broker still there?
constexpr uint64_t kRetryNs = 100'000'000;      // between attempts to find a new broker

constinit std::mutex attaching;
constinit std::atomic<bool> failed{false};
constinit std::atomic<uint32_t> context_epoch{1};
constinit std::mutex reattaching;
constinit std::atomic<uint64_t> next_attempt_ns{0};

struct Remembered {
  CUcontext context;
  uint32_t epoch;
  int gpu;
};
// Initial-exec: a plain load instead of a call; the loader keeps room for this much in late-loaded libraries.
thread_local constinit __attribute__((tls_model("initial-exec"))) Remembered last_place{nullptr, 0, 0};

// The child of a fork shares our pages but not our slot, and its driver is not initialised: it starts from nothing.
// Its copies of the parent's records are left where they are; locks that another thread held are made anew.
void InChild() {
  Process* parents = process.exchange(nullptr, std::memory_order_acq_rel);
  new (&attaching) std::mutex;
  new (&reattaching) std::mutex;
  failed.store(false, std::memory_order_relaxed);
  next_attempt_ns.store(0, std::memory_order_relaxed);
  context_epoch.fetch_add(1, std::memory_order_relaxed);
  BiasedLock::ForgetInChild();
  LanesChanged();
  if (parents == nullptr) return;
  Attachment copy = *parents->attachment.load(std::memory_order_acquire);
  copy.connection.Close();
  copy.ledger_fd.Close();
  copy.doorbell.Close();
}

__attribute__((constructor)) void WatchForks() { pthread_atfork(nullptr, nullptr, InChild); }

}  // namespace

Process* AttachNow(bool again) {
  std::lock_guard lock(attaching);
  Process* p = process.load(std::memory_order_acquire);
  if (p != nullptr) return p;
  if (failed.load(std::memory_order_relaxed) && !again) return nullptr;
  auto* attachment = new (std::nothrow) Attachment;
  p = new (std::nothrow) Process;
  Why why;
  if (attachment == nullptr || p == nullptr || !Attach(ledger::MessageType::kAttach, attachment, &why)) {
    delete attachment;
    delete p;
    if (!failed.exchange(true)) Complain(why.text[0] != '\0' ? why.text : "out of memory while joining the share");
    return nullptr;
  }
  for (auto& gpu : p->gpu_of_device) gpu.store(-2, std::memory_order_relaxed);
  p->attachment.store(attachment, std::memory_order_release);
  MapDevices(*p);
  failed.store(false, std::memory_order_relaxed);
  process.store(p, std::memory_order_release);
  return p;
}

void MapDevices(Process& p) {
  const Attachment& a = *p.attachment.load(std::memory_order_acquire);
  int count = 0;
  if (driver.cuDeviceGetCount == nullptr || driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  for (int i = 0; i < count && i < kMaxDevices; ++i) {
    CUdevice device = i;
    CUuuid uuid;
    if (driver.cuDeviceGet != nullptr && driver.cuDeviceGet(&device, i) != CUDA_SUCCESS) continue;
    if (device < 0 || device >= kMaxDevices) continue;
    auto* ask = driver.cuDeviceGetUuid_v2 != nullptr ? driver.cuDeviceGetUuid_v2 : driver.cuDeviceGetUuid;
    int8_t found = -1;
    if (ask != nullptr && ask(&uuid, device) == CUDA_SUCCESS) {
      for (uint32_t gpu = 0; gpu < a.gpu_count; ++gpu) {
        if (memcmp(uuid.bytes, a.limits->gpu[gpu].uuid, sizeof uuid.bytes) == 0) found = static_cast<int8_t>(gpu);
      }
    }
    p.gpu_of_device[device].store(found, std::memory_order_relaxed);
  }
  p.devices_known.store(true, std::memory_order_release);
}

int GpuOfDevice(Process& p, CUdevice device) {
  if (!p.devices_known.load(std::memory_order_acquire)) MapDevices(p);
  if (device < 0 || device >= kMaxDevices) return -2;
  return p.gpu_of_device[device].load(std::memory_order_relaxed);
}

bool Locate(Process& p, Place* place) {
  CUcontext context = nullptr;
  if (driver.cuCtxGetCurrent == nullptr || driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) context = nullptr;
  place->context = context;
  if (context == nullptr) {
    place->view = ViewOf(p, 0);
    return true;
  }
  const uint32_t epoch = context_epoch.load(std::memory_order_relaxed);
  if (last_place.context != context || last_place.epoch != epoch) {
    CUdevice device = -1;
    if (driver.cuCtxGetDevice == nullptr || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;
    last_place = {context, epoch, GpuOfDevice(p, device)};
  }
  if (last_place.gpu < 0) return false;
  place->gpu = static_cast<uint32_t>(last_place.gpu);
  place->view = ViewOf(p, place->gpu);
  return true;
}

void ForgetContexts() { context_epoch.fetch_add(1, std::memory_order_relaxed); }

bool HeartbeatStale(const Process& p) {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  const uint64_t now = static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  const Attachment* a = p.attachment.load(std::memory_order_acquire);
  const uint64_t beat = a->limits->heartbeat_ns.load(std::memory_order_relaxed);
  return now > beat && now - beat > kLookAfterNs && now >= next_attempt_ns.load(std::memory_order_relaxed);
}

void KeepAttached(Process& p) {
  std::unique_lock lock(reattaching, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const uint64_t now = Now();
  if (now < next_attempt_ns.load(std::memory_order_relaxed)) return;
  next_attempt_ns.store(now + kRetryNs, std::memory_order_relaxed);
  const Attachment* old = p.attachment.load(std::memory_order_acquire);
  if (Connected(*old)) return;
  auto* fresh = new (std::nothrow) Attachment;
  Why why;
  if (fresh == nullptr || !Reattach(*old, fresh, &why) || fresh->gpu_count != old->gpu_count) {
    delete fresh;  // the old limits stay in force
    return;
  }
  // The same pages for all: usually the very ledger that we sent. If another process's came first, ours moves there.
  for (uint32_t gpu = 0; gpu < fresh->gpu_count; ++gpu) {
    const ledger::View was{old->limits, old->ledger, gpu, old->slot};
    const ledger::View is{fresh->limits, fresh->ledger, gpu, fresh->slot};
    const uint64_t held = ledger::UsedBySlot(was);
    const uint64_t there = ledger::UsedBySlot(is);
    if (there < held) {
      ledger::Charge(is, held - there);
      const uint64_t believed = ledger::BelievedBySlot(*was.ledger, gpu, was.slot);
      ledger::Defer(is, held - believed);
    }
  }
  p.attachment.store(fresh, std::memory_order_release);
  LanesChanged();
  // Only this function uses these two. The old doorbell stays open: another thread may be about to ring it.
  Attachment gone = *old;
  gone.connection.Close();
  gone.ledger_fd.Close();
}

}  // namespace mete::interceptor
