// A fake GPU whose settings and instances outlive the process that changed them, as a real one's do: they stand in
// memory that forked brokers share. One process at a time changes them; its threads may look at the same time.
#ifndef METE_SHARE_TESTING_SHARED_DEVICE_H_
#define METE_SHARE_TESTING_SHARED_DEVICE_H_

#include <sys/mman.h>

#include <array>
#include <mutex>
#include <new>

#include "mechanism/mig/mig.h"
#include "nvml/fake.h"

namespace mete::share::testing {

class SharedDevice final : public nvml::FakeDevice {
 private:
  struct Kept {
    nvml::ComputeMode mode = nvml::ComputeMode::kDefault;
    nvml::MigState mig{nvml::MigMode::kDisabled, nvml::MigMode::kDisabled};
    uint32_t made = 0;
    size_t count = 0;
    struct One {
      uint32_t id = 0, profile_id = 0;
      int start = 0, size = 0, slices = 0;  // 0 slices: it has no compute instance
    };
    std::array<One, 8> instances;
  };

  template <typename Call>
  auto With(Call call) const {
    const std::lock_guard<std::mutex> lock(one_at_a_time_);
    mode = kept_->mode;
    mig = kept_->mig;
    made_instances = kept_->made;
    instances.clear();
    for (size_t i = 0; i < kept_->count; ++i) {
      const Kept::One& one = kept_->instances[i];
      nvml::GpuInstance instance;
      instance.id = one.id;
      instance.profile_id = one.profile_id;
      instance.start = one.start;
      instance.size = one.size;
      if (one.slices > 0) {
        instance.compute.push_back({0, 0, one.slices, fmt::format("MIG-{:08x}-0000-0000-0000-000000000000", one.id)});
      }
      instances.push_back(std::move(instance));
    }
    auto result = call();
    kept_->mode = mode;
    kept_->mig = mig;
    kept_->made = made_instances;
    kept_->count = 0;
    for (const nvml::GpuInstance& one : instances) {
      kept_->instances[kept_->count++] = {one.id, *one.profile_id, one.start, one.size,
                                          one.compute.empty() ? 0 : one.compute[0].size};
    }
    return result;
  }

 public:
  SharedDevice() {
    void* shared = mmap(nullptr, sizeof(Kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    kept_ = new (shared) Kept;
    const gpu::MigBoard* board = *mechanism::MigBoardOf(*this);
    id_of_profile = [board](uint32_t wanted) {
      for (const gpu::MigProfile& profile : board->profiles) {
        if (profile.nvml_profile == wanted) return profile.id;
      }
      return UINT32_MAX;
    };
  }
  ~SharedDevice() override { munmap(kept_, sizeof(Kept)); }

  StatusOr<nvml::ComputeMode> Mode() const override {
    return With([this] { return FakeDevice::Mode(); });
  }
  Status SetMode(nvml::ComputeMode wanted) const override {
    return With([this, wanted] { return FakeDevice::SetMode(wanted); });
  }
  StatusOr<nvml::MigState> Mig() const override {
    return With([this] { return FakeDevice::Mig(); });
  }
  StatusOr<nvml::MigState> SetMig(bool on) const override {
    return With([this, on] { return FakeDevice::SetMig(on); });
  }
  StatusOr<std::vector<nvml::GpuInstance>> GpuInstances() const override {
    return With([this] { return FakeDevice::GpuInstances(); });
  }
  StatusOr<nvml::GpuInstance> CreateGpuInstance(uint32_t profile, int start, int size) const override {
    return With([=, this] { return FakeDevice::CreateGpuInstance(profile, start, size); });
  }
  StatusOr<nvml::ComputeInstance> CreateComputeInstance(uint32_t id, int slices) const override {
    return With([=, this] { return FakeDevice::CreateComputeInstance(id, slices); });
  }
  Status DestroyComputeInstance(uint32_t id, uint32_t compute) const override {
    return With([=, this] { return FakeDevice::DestroyComputeInstance(id, compute); });
  }
  Status DestroyGpuInstance(uint32_t id) const override {
    return With([=, this] { return FakeDevice::DestroyGpuInstance(id); });
  }
  StatusOr<std::vector<std::shared_ptr<const Device>>> MigDevices() const override {
    return With([this] { return FakeDevice::MigDevices(); });
  }

 private:
  Kept* kept_;
  mutable std::mutex one_at_a_time_;
};

}  // namespace mete::share::testing

#endif  // METE_SHARE_TESTING_SHARED_DEVICE_H_
