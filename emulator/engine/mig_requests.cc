// MIG on the engine's GPUs: requests about modes and instances, and the parts of the model behind them.
#include <algorithm>

#include "emulator/engine/engine.h"
#include "emulator/engine/payload.h"

namespace mete::emulator {

namespace {

constexpr uint32_t kSwitchesWithoutReset = 9;  // compute capability: Hopper

}  // namespace

Result Engine::HandleMig(Session& session, const Request& request, uint64_t now_ns, ReplyHeader* header,
                         std::vector<uint8_t>* payload) {
  const auto type = static_cast<MessageType>(request.type);
  Gpu& gpu = *gpus_[request.gpu];
  if (!gpu.mig.capable() && type != MessageType::kMigState && type != MessageType::kMigProfiles) {
    return Result::kNotSupported;
  }
  const auto start = static_cast<uint32_t>(std::min<uint64_t>(request.amount, kAnyStart));
  const auto instance = static_cast<uint32_t>(std::min<uint64_t>(request.context, kNoInstance));
  switch (type) {
    case MessageType::kMigProfiles: header->count = AppendAll(*payload, gpu.mig.Profiles()); return Result::kOk;
    case MessageType::kMigState: Append(*payload, gpu.mig.State()); return Result::kOk;
    case MessageType::kMigRoom: {
      uint32_t count = 0;
      const Result result = gpu.mig.Room(instance, request.value, &count);
      header->a = count;
      return result;
    }
    case MessageType::kMigMemory: {
      MigGpu::Instance* found = gpu.mig.Find(instance);
      if (found == nullptr) return Result::kNoSuchObject;
      header->a = found->info.memory_bytes - std::min(found->info.memory_bytes, found->info.used_bytes);
      header->b = found->info.memory_bytes;
      return Result::kOk;
    }
    case MessageType::kCreateMigContext: {
      const MigGpu::Compute* place = nullptr;
      if (const MigGpu::Instance* found = gpu.mig.Find(instance)) {
        for (const MigGpu::Compute& one : found->computes) {
          if (one.info.id == request.value) place = &one;
        }
      }
      if (place == nullptr) return Result::kNoSuchObject;
      return CreateContext(session, request.gpu, place->info.serial, &header->a, now_ns);
    }
    case MessageType::kSetMigMode: {
      if (request.value > 1) return Result::kInvalid;
      header->a = static_cast<uint64_t>(SetMigMode(request.gpu, request.value == 1, now_ns));
      return Result::kOk;
    }
    case MessageType::kCreateGpuInstance: {
      MigGpu::Instance* made = nullptr;
      const Result result = gpu.mig.CreateGpuInstance(request.value, start, &made);
      if (result != Result::kOk) return result;
      const uint32_t slices = gpu.mig.State().memory_slices;
      made->part = gpu.model.AddInstance(
          {static_cast<double>(made->info.size) / slices, static_cast<uint32_t>(made->profile->copy_engines)});
      Append(*payload, made->info);
      return result;
    }
    case MessageType::kCreateComputeInstance: {
      MigGpu::Compute* made = nullptr;
      const Result result = gpu.mig.CreateComputeInstance(instance, request.value, start, &made);
      if (result != Result::kOk) return result;
      made->part = gpu.model.AddPartition(gpu.mig.Find(instance)->part, made->info.sm_count);
      Append(*payload, made->info);
      return result;
    }
    case MessageType::kDestroyGpuInstance: {
      const Result result = gpu.mig.MayDestroy(instance);
      if (result != Result::kOk) return result;
      gpu.model.RemoveInstance(gpu.mig.Find(instance)->part);
      gpu.mig.Erase(instance);
      return result;
    }
    case MessageType::kDestroyComputeInstance: {
      const Result result = gpu.mig.MayDestroy(instance, request.value);
      if (result != Result::kOk) return result;
      for (const MigGpu::Compute& one : gpu.mig.Find(instance)->computes) {
        if (one.info.id == request.value) gpu.model.RemovePartition(one.part);
      }
      gpu.mig.Erase(instance, request.value);
      return result;
    }
    default: return Result::kInvalid;
  }
}

// The mode changes on an idle GPU only; before Hopper by a reset of it.
Result Engine::SetMigMode(uint32_t index, bool on, uint64_t now_ns) {
  Gpu& gpu = *gpus_[index];
  gpu.mig.Ask(on);
  if (gpu.mig.on() == on) return Result::kOk;
  if (gpu.contexts > 0 || gpu.used > 0 || !gpu.mig.instances().empty()) return Result::kInUse;
  if (gpu.info.compute_major < kSwitchesWithoutReset) return ResetGpu(index, now_ns);
  SwitchMig(index);
  return Result::kOk;
}

void Engine::SwitchMig(uint32_t index) {
  Gpu& gpu = *gpus_[index];
  for (const MigGpu::Instance& instance : gpu.mig.instances()) gpu.model.RemoveInstance(instance.part);
  gpu.mig.instances().clear();
  if (gpu.mig.on() != gpu.mig.pending()) {
    gpu.mig.Switch();
    gpu.compute_mode = 0;  // neither of the two can be had with MIG
    gpu.settings.accounting = 0;
    gpu.accounting.Enable(false);
  }
  ApplyTimeSlice(index);
}

// A policy is the whole GPU's: contexts in instances keep what CUDA asks for.
void Engine::ApplyTimeSlice(uint32_t index) {
  Gpu& gpu = *gpus_[index];
  gpu.model.SetTimeSlice(settings_.gpus[index].time_slices_ns[gpu.mig.on() ? 0 : gpu.time_slice_class]);
}

// Boards before Hopper keep the mode themselves; with later ones it ends with the driver.
void Engine::ForgetMigMode(uint32_t index) {
  if (gpus_[index]->info.compute_major >= kSwitchesWithoutReset) gpus_[index]->mig.Ask(false);
}

void Engine::Use(uint32_t index, uint32_t place, int64_t bytes) {
  Gpu& gpu = *gpus_[index];
  gpu.used += static_cast<uint64_t>(bytes);
  MigGpu::Instance* instance = nullptr;
  MigGpu::Compute* compute = place == 0 ? nullptr : gpu.mig.FindPlace(place, &instance);
  if (compute == nullptr) return;  // the whole GPU, or an instance that a reset has ended
  compute->used += static_cast<uint64_t>(bytes);
  instance->info.used_bytes += static_cast<uint64_t>(bytes);
}

uint64_t Engine::FreeBytes(uint32_t index, uint32_t place) {
  Gpu& gpu = *gpus_[index];
  MigGpu::Instance* instance = nullptr;
  const bool inside = place != 0 && gpu.mig.FindPlace(place, &instance) != nullptr;
  const uint64_t all = inside ? instance->info.memory_bytes : gpu.info.memory_bytes;
  if (settings_.without.memory_limit) return all;
  const uint64_t taken = inside ? instance->info.used_bytes : gpu.info.reserved_bytes + gpu.used;
  return all > taken ? all - taken : 0;
}

std::pair<uint32_t, uint32_t> Engine::InstancesOf(uint32_t index, uint32_t place) {
  MigGpu::Instance* instance = nullptr;
  const MigGpu::Compute* compute = place == 0 ? nullptr : gpus_[index]->mig.FindPlace(place, &instance);
  if (compute == nullptr) return {kNoInstance, kNoInstance};
  return {instance->info.id, compute->info.id};
}

Json Engine::MigJson(uint32_t index) const {
  const MigGpu& mig = gpus_[index]->mig;
  Json json = {{"mode", mig.on()}, {"pending", mig.pending()}, {"gpu_instances", Json::array()}};
  for (const MigGpu::Instance& instance : mig.instances()) {
    Json computes = Json::array();
    for (const MigGpu::Compute& compute : instance.computes) {
      computes.push_back({{"id", compute.info.id},
                          {"profile", compute.profile->name},
                          {"start", compute.info.start},
                          {"size", compute.info.size},
                          {"sm_count", compute.info.sm_count},
                          {"contexts", compute.info.contexts}});
    }
    json["gpu_instances"].push_back({{"id", instance.info.id},
                                     {"profile", instance.profile->name},
                                     {"start", instance.info.start},
                                     {"size", instance.info.size},
                                     {"memory_bytes", instance.info.memory_bytes},
                                     {"memory_used_bytes", instance.info.used_bytes},
                                     {"compute_instances", std::move(computes)}});
  }
  return json;
}

}  // namespace mete::emulator
