#include "share/audit.h"

#include <sys/prctl.h>

#include <utility>

namespace mete::share {

namespace {

constexpr std::chrono::milliseconds kSoonest{2};  // between two readings, whoever asks for them

StatusOr<GpuReading> ReadGpu(const nvml::Device& device) {
  GpuReading reading;
  reading.index = device.index();
  reading.uuid = device.uuid();
  reading.name = device.name();
  const StatusOr<nvml::MemoryUse> memory = device.Memory();
  if (!memory.ok() && nvml::Unsupported(memory.status())) {
    return Lacks(
        "GPU {} ({}): NVML does not say how much memory it has, as on boards that use the host's; no part of it can be "
        "promised. Use another GPU, or this one without mete",
        device.index(), device.name());
  }
  METE_RETURN_IF_ERROR(memory.status());
  reading.memory = *memory;
  METE_ASSIGN_OR_RETURN(reading.processes, device.Processes());
  return reading;
}

StatusOr<GpuReading> ReadWholeGpu(const nvml::Device& device) {
  METE_ASSIGN_OR_RETURN(GpuReading reading, ReadGpu(device));
  METE_ASSIGN_OR_RETURN(reading.mig, device.Mig());
  if (reading.mig.current != nvml::MigMode::kEnabled) return reading;
  METE_ASSIGN_OR_RETURN(reading.instances, device.GpuInstances());
  return reading;
}

// A MIG device may go while it is looked at; then it is not there.
void ReadMigDevices(const nvml::Device& device, const std::string& parent, std::vector<GpuReading>* readings) {
  const auto devices = device.MigDevices();
  if (!devices.ok()) return;
  for (const auto& one : *devices) {
    StatusOr<GpuReading> reading = ReadGpu(*one);
    if (!reading.ok()) continue;
    reading->parent = parent;
    readings->push_back(*std::move(reading));
  }
}

}  // namespace

StatusOr<std::vector<GpuReading>> ReadGpus(const nvml::Library& library) {
  METE_ASSIGN_OR_RETURN(const auto devices, library.Devices());
  std::vector<GpuReading> readings;
  Status first_fault = OkStatus();
  for (const auto& device : devices) {
    StatusOr<GpuReading> reading = ReadWholeGpu(*device);
    if (reading.ok()) {
      const bool mig = reading->mig.current == nvml::MigMode::kEnabled;
      readings.push_back(*std::move(reading));
      if (mig) ReadMigDevices(*device, device->uuid(), &readings);
    } else if (first_fault.ok()) {
      first_fault = reading.status();
    }
  }
  // One that is lost takes nothing from the others.
  if (readings.empty() && !first_fault.ok()) return first_fault;
  return readings;
}

Audit::Audit(const nvml::Library& library, std::chrono::milliseconds period, std::function<void()> ready)
    : library_(library), period_(period), ready_(std::move(ready)), thread_([this] { Run(); }) {}

Audit::~Audit() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::optional<Audit::Reading> Audit::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(latest_, std::nullopt);
}

void Audit::Again() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    again_ = true;
  }
  wake_.notify_all();
}

void Audit::Run() {
  prctl(PR_SET_NAME, "mete-audit");
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    lock.unlock();
    Reading reading = ReadGpus(library_);
    lock.lock();
    latest_ = std::move(reading);
    lock.unlock();
    ready_();
    lock.lock();
    const auto soonest = std::chrono::steady_clock::now() + kSoonest;
    wake_.wait_for(lock, period_, [this] { return stop_ || again_; });
    wake_.wait_until(lock, soonest, [this] { return stop_; });
    again_ = false;
  }
}

}  // namespace mete::share
