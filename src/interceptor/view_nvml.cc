#include "interceptor/view_nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <atomic>
#include <mutex>
#include <new>

#include "interceptor/connection.h"
#include "interceptor/nvml_driver.h"
#include "ledger/account.h"
#include "ledger/futex.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kLookAfterNs = 1'000'000'000;

constinit std::mutex mutex;
constinit std::atomic<const Share*> current{nullptr};
constinit Attachment attachment;
constinit bool complained = false;
constinit uint64_t next_attempt_ns = 0;

__attribute__((constructor)) void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { new (&mutex) std::mutex; });
}

// NVML's name of a GPU: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
void NameOf(const uint8_t uuid[16], const char* prefix, char name[48]) {
  int at = snprintf(name, 48, "%s-", prefix);
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) name[at++] = '-';
    at += snprintf(name + at, static_cast<size_t>(48 - at), "%02x", uuid[i]);
  }
}

// With the lock. The old pages stay mapped, since another thread may read them.
const Share* Join(bool say_why) {
  Attachment fresh;
  Why why;
  if (!Attach(ledger::MessageType::kObserve, &fresh, &why)) {
    if (say_why && !complained) Complain(why.text);
    complained |= say_why;
    return nullptr;
  }
  auto* share = new (std::nothrow) Share;
  if (share == nullptr) return nullptr;
  share->limits = fresh.limits;
  share->ledger = fresh.ledger;
  share->gpu_count = fresh.gpu_count;
  if (const Share* old = current.load(std::memory_order_acquire)) {
    share->seen = old->seen;
  }
  attachment.connection.Close();
  attachment.ledger_fd.Close();
  attachment = fresh;
  current.store(share, std::memory_order_release);
  return share;
}

}  // namespace

const Share* Observe() {
  const Share* share = current.load(std::memory_order_acquire);
  const uint64_t now = ledger::MonotonicNs();
  if (share != nullptr) {
    const uint64_t beat = share->limits->heartbeat_ns.load(std::memory_order_relaxed);
    if (beat > now || now - beat < kLookAfterNs) return share;
  }
  std::lock_guard lock(mutex);
  if (share == nullptr) {
    share = current.load(std::memory_order_acquire);
    return share != nullptr ? share : Join(true);
  }
  // A broker that fell silent: a new one hands out new pages; until then the old ones stay in force.
  if (now < next_attempt_ns || Connected(attachment)) return share;
  next_attempt_ns = now + kLookAfterNs;
  const Share* fresh = Join(false);
  return fresh != nullptr ? fresh : share;
}

void FindDevices() {
  std::lock_guard lock(mutex);
  const Share* old = current.load(std::memory_order_acquire);
  if (old == nullptr || nvml_driver.nvmlDeviceGetHandleByUUID == nullptr) return;
  auto* share = new (std::nothrow) Share(*old);
  if (share == nullptr) return;
  share->seen = {};
  for (uint32_t gpu = 0; gpu < share->gpu_count; ++gpu) {
    for (const char* prefix : {"GPU", "MIG"}) {
      char name[48];
      NameOf(share->limits->gpu[gpu].uuid, prefix, name);
      nvmlDevice_t device = nullptr;
      if (nvml_driver.nvmlDeviceGetHandleByUUID(name, &device) != nvml::abi::NVML_SUCCESS || device == nullptr)
        continue;
      nvmlDevice_t parent = nullptr;
      if (name[0] == 'M' &&
          (nvml_driver.nvmlDeviceGetDeviceHandleFromMigDeviceHandle == nullptr ||
           nvml_driver.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &parent) != nvml::abi::NVML_SUCCESS))
        continue;
      share->seen.Add(device, parent, gpu);
      break;
    }
  }
  current.store(share, std::memory_order_release);
}

Usage UsageOf(const Share& share, int gpu) {
  // The account's functions only load from the ledger here.
  const ledger::View view{share.limits, const_cast<ledger::LedgerPage*>(share.ledger), static_cast<uint32_t>(gpu), 0};
  return {share.limits->gpu[gpu].memory_quota.load(std::memory_order_relaxed), ledger::Used(view)};
}

bool HeldBy(const Share& share, nvmlDevice_t device, unsigned pid, uint64_t* bytes) {
  if (pid == 0 || !share.seen.Has(device)) return false;
  uint32_t slots = share.ledger->slots_used.load(std::memory_order_acquire);
  if (slots > ledger::kMaxSlots) slots = ledger::kMaxSlots;
  bool ours = false;
  *bytes = 0;
  for (uint32_t i = 0; i < slots; ++i) {
    const ledger::Slot& slot = share.ledger->slots[i];
    if (slot.generation.load(std::memory_order_relaxed) == 0 || slot.pid.load(std::memory_order_relaxed) != pid)
      continue;
    ours = true;
    share.seen.EachPage(device,
                        [&](int gpu) { *bytes += ledger::HeldBySlot(*share.ledger, static_cast<uint32_t>(gpu), i); });
  }
  return ours;
}

}  // namespace mete::interceptor
