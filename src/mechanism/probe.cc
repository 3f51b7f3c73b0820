#include "mechanism/probe.h"

#include <charconv>
#include <optional>

namespace mete::mechanism {
namespace {

using gpu::Mechanism;
using gpu::Promise;
using nvml::ComputeCapability;

constexpr ComputeCapability kVolta{7, 0};
constexpr ComputeCapability kAmpere{8, 0};
constexpr ComputeCapability kHopper{9, 0};
constexpr ComputeCapability kMpsLeast{3, 5};
constexpr int kLimitsDriver = 615;

bool MigOn(const GpuFacts& facts) { return facts.mig.current == nvml::MigMode::kEnabled; }

std::string Of(ComputeCapability capability) { return fmt::format("{}.{}", capability.major, capability.minor); }

// Why MIG cannot be used; nothing if it can.
std::optional<std::string> WhyNoMig(const GpuFacts& facts) {
  if (facts.mig.current != nvml::MigMode::kNotCapable) return std::nullopt;
  if (facts.capability < kAmpere) {
    return fmt::format("it has no MIG (compute capability {} < 8.0)", Of(facts.capability));
  }
  if (facts.board != nullptr && facts.board->mig) {
    return fmt::format("driver {} does not offer the MIG that the board has", facts.driver_major);
  }
  return "it has no MIG (not built into this board)";
}

std::optional<std::string> WhyNoMps(const GpuFacts& facts, std::string_view variant) {
  if (facts.capability < kMpsLeast) return fmt::format("compute capability {} < 3.5", Of(facts.capability));
  if (variant == "mps-limits" && facts.capability < kVolta) {
    return fmt::format("limits need Volta or newer: compute capability {} < 7.0", Of(facts.capability));
  }
  if (variant == "mps-static-partitions" && facts.capability < kAmpere) {
    return fmt::format("static partitions need Ampere or newer: compute capability {} < 8.0", Of(facts.capability));
  }
  return std::nullopt;
}

std::optional<std::string> WhyNoVgpu(const GpuFacts& facts, std::string_view variant) {
  if (facts.board == nullptr) return fmt::format("\"{}\" is not in the board catalogue", facts.name);
  if (!facts.board->vgpu_c_series) return "NVIDIA lists no compute vGPU types for this board";
  if (variant == "vgpu-mig-backed") {
    if (auto why = WhyNoMig(facts)) return why;
  } else if (MigOn(facts)) {
    return "MIG is on: only MIG-backed vGPUs";
  }
  if (!facts.vgpu_host_driver) return "this host offers no vGPU types: no vGPU host driver";
  return std::nullopt;
}

// Why GPU and driver cannot do this; nothing if they can.
std::optional<std::string> WhyNot(const GpuFacts& facts, const gpu::Variant& variant) {
  switch (variant.mechanism) {
    case Mechanism::kExclusive:
      if (MigOn(facts)) return "MIG is on: a process sees an instance, never the whole GPU";
      return std::nullopt;
    case Mechanism::kTimeSlicing:
      if (MigOn(facts)) return "MIG is on: time slices have no effect between instances";
      return std::nullopt;
    case Mechanism::kMps: return WhyNoMps(facts, variant.name);
    case Mechanism::kMig: return WhyNoMig(facts);
    case Mechanism::kVgpu: return WhyNoVgpu(facts, variant.name);
    case Mechanism::kIntercept: break;
  }
  if (MigOn(facts)) return "MIG is on: interception shares whole GPUs, and MIG devices when they are named";
  return std::nullopt;
}

// What a person should know about something that is possible.
std::string Remark(const GpuFacts& facts, Mechanism mechanism) {
  // Of interest where the driver has them: on an older one there is nothing to be done about it.
  if (mechanism == Mechanism::kIntercept && facts.kernel_limits.driver_major >= kLimitsDriver) {
    const std::string why = WhyNoKernelLimits(facts.kernel_limits);
    if (!why.empty()) return "the library alone limits memory: " + why;
    return fmt::format("the {} holds the memory limit too, the library alone that of compute",
                       facts.kernel_limits.dmem ? "kernel" : "driver");
  }
  if (mechanism != Mechanism::kMig) return {};
  if (facts.mig.current != facts.mig.pending) return "a change of MIG mode waits for a reset of the GPU or a reboot";
  if (MigOn(facts)) return "MIG is on";
  return facts.capability < kHopper ? "MIG is off: switching it on needs an idle GPU and a reset"
                                    : "MIG is off: switching it on needs an idle GPU";
}

// Boards that one NVSwitch fabric ties together are named after their socket.
bool OnNvSwitchBeforeHopper(const GpuFacts& facts) {
  return facts.capability < kHopper && facts.name.find("SXM") != std::string::npos;
}

PromiseHere Judge(const GpuFacts& facts, const gpu::Variant& variant, Promise promise, const gpu::PromiseTable& table) {
  const gpu::Verdict& verdict = variant.Of(promise);
  PromiseHere here{promise, Keeps::kNot, verdict.why};
  switch (verdict.value) {
    case gpu::Value::kYes: here.keeps = Keeps::kAlways; return here;
    case gpu::Value::kNo: return here;
    case gpu::Value::kCapOnly: here.keeps = Keeps::kWhileAllGranted; return here;
    case gpu::Value::kConditional: break;
  }
  switch (verdict.condition) {
    case gpu::Condition::kVoltaOrNewer:
      if (facts.capability >= kVolta) here.keeps = Keeps::kAlways;
      break;
    case gpu::Condition::kResetsAlone:
      if (!OnNvSwitchBeforeHopper(facts)) here.keeps = Keeps::kAlways;
      break;
    case gpu::Condition::kInForce: here.keeps = Keeps::kWhileInForce; break;
    // These depend on how a node is set up, which the GPU alone does not tell.
    case gpu::Condition::kAgent:
    case gpu::Condition::kMultiUserServer:
    case gpu::Condition::kServerLimits:
    case gpu::Condition::kOwnPartition:
    case gpu::Condition::kUnchecked:
    case gpu::Condition::kNone: break;
  }
  if (here.keeps == Keeps::kNot) here.why += fmt::format(" (condition: {})", table.Meaning(verdict.condition));
  return here;
}

}  // namespace

int DriverMajor(std::string_view version) {
  int major = 0;
  const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), major);
  return error == std::errc() && end != version.data() && major > 0 ? major : 0;
}

std::string WhyNoKernelLimits(const KernelLimitFacts& facts) {
  if (facts.driver_major < kLimitsDriver) {
    return fmt::format("limits by cgroup need driver {}, and this is {}", kLimitsDriver, facts.driver_major);
  }
  if (!facts.calls) return "this NVML has no calls for limits by cgroup";
  if (!facts.cgroup_v2) return fmt::format("there is no cgroup v2 tree in {}", facts.cgroups);
  if (!facts.writable) return fmt::format("{} cannot be written by this user; root and the agent can", facts.cgroups);
  return {};
}

bool Built(Mechanism mechanism) {
  return mechanism == Mechanism::kIntercept || mechanism == Mechanism::kExclusive ||
         mechanism == Mechanism::kTimeSlicing || mechanism == Mechanism::kMig;
}

std::vector<VariantHere> ProbeGpu(const GpuFacts& facts, const gpu::PromiseTable& table) {
  std::vector<VariantHere> result;
  for (const gpu::Variant& variant : table.variants()) {
    VariantHere here;
    here.variant = &variant;
    if (auto why = WhyNot(facts, variant)) {
      here.why = *std::move(why);
    } else {
      here.standing = Built(variant.mechanism) ? Standing::kSupported : Standing::kNotBuilt;
      here.why = Remark(facts, variant.mechanism);
    }
    for (Promise promise : gpu::Promises()) here.promises.push_back(Judge(facts, variant, promise, table));
    result.push_back(std::move(here));
  }
  return result;
}

}  // namespace mete::mechanism
