// The driver of this process: its connection to the node's engine, its devices, and what is counted.
// One per process, made by cuInit and never destroyed: nothing may run at exit, and a forked child must find everything
// as it was and touch none of it. Any thread.
#ifndef METE_EMULATOR_CUDA_DRIVER_H_
#define METE_EMULATOR_CUDA_DRIVER_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "emulator/cuda/content.h"
#include "emulator/cuda/exports.h"
#include "emulator/cuda/handle.h"
#include "emulator/cuda/visible.h"
#include "emulator/engine/client.h"
#include "emulator/ptx/ptx.h"

namespace mete::emulator::cuda {

struct Context;
struct Pool;

struct Device {
  uint32_t gpu = 0;            // the engine's number
  std::optional<MigSeat> mig;  // the device is this compute instance of the GPU
  GpuInfo info;                // of a compute instance: its part of the GPU, under the GPU's UUID and bus id
  std::mutex mutex;            // of what follows
  Context* primary = nullptr;
  uint32_t primary_uses = 0;
  uint32_t primary_flags = 0;
  Pool* default_pool = nullptr;
  Pool* current_pool = nullptr;
};

struct Counters {
  std::atomic<uint64_t> exact{0}, extrapolated{0}, cached{0}, unbounded{0}, timed_only{0};
};

class Driver {
 public:
  // How to reach the engine. Tests put their own in front of the first cuInit.
  using ClientFactory = bool (*)(Client** client, std::string* why);
  static void SetClientFactory(ClientFactory factory);

  // Null before cuInit and in a forked child.
  static Driver* Get() { return instance_.load(std::memory_order_acquire); }
  static CUresult Init();
  static bool Traced();

  // By CUDA's ordinal; null if out of range.
  Device* DeviceAt(int ordinal) {
    return ordinal >= 0 && static_cast<size_t>(ordinal) < devices_.size() ? devices_[ordinal].get() : nullptr;
  }
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  int OrdinalOf(const Device* device) const;

  Client& client() { return *client_; }
  // The engine's context and memory of a device, be it a GPU or a part of one.
  Result CreateContext(const Device& device, uint64_t* context);
  Result MemoryInfo(const Device& device, uint64_t* free_bytes, uint64_t* total_bytes);
  Content& content() { return content_; }
  AddressSpace& address_space() { return address_space_; }
  Counters& counters() { return counters_; }
  const ptx::Budget& budget() const { return budget_; }
  bool launch_blocking() const { return launch_blocking_; }
  uint64_t NextId() { return next_id_.fetch_add(1, std::memory_order_relaxed) + 1; }

  std::mutex contexts_mutex;
  std::vector<Context*> contexts;  // every one ever made; dead ones stay as handles

 private:
  Driver(Client* client);
  static void Dump();
  static void ForkedChild();

  static std::atomic<Driver*> instance_;
  Client* client_;
  std::vector<std::unique_ptr<Device>> devices_;
  Content content_;
  AddressSpace address_space_;
  Counters counters_;
  ptx::Budget budget_;
  bool launch_blocking_ = false;
  std::atomic<uint64_t> next_id_{0};
};

CUresult FromResult(Result result);

// Whether the one GPU can use the other's memory directly (peer.cc).
bool CanReach(const Device& device, const Device& other);

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_DRIVER_H_
