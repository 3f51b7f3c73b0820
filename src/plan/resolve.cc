#include "plan/resolve.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace mete::plan {
namespace {

constexpr uint32_t kFull = 10000;

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// "GPU 0 (NVIDIA A100-SXM4-40GB)"
std::string Name(const GpuOccupancy& gpu) { return fmt::format("GPU {} ({})", gpu.index, gpu.name); }

// Memory that `share` may not have: what others were promised, and what others without a promise already hold.
uint64_t TakenMemory(const GpuOccupancy& gpu, const std::string& share) {
  uint64_t taken = 0;
  for (const Holding& holding : gpu.holdings) {
    if (holding.share == share) continue;
    taken += holding.memory ? holding.memory->count : holding.used.count;
  }
  for (const Foreigner& foreigner : gpu.foreigners) taken += foreigner.used.count;
  return taken;
}

uint32_t TakenCompute(const GpuOccupancy& gpu, const std::string& share) {
  uint32_t taken = 0;
  for (const Holding& holding : gpu.holdings) {
    if (holding.share != share && holding.compute) taken += holding.compute->percent.hundredths;
  }
  return taken;
}

// "team holds a quota of 8 GiB; job-1 holds 2 GiB without a quota; process 71 (python3), of no share, holds 3 GiB"
std::string WhoHoldsMemory(const GpuOccupancy& gpu, const std::string& share) {
  std::string text;
  auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  for (const Holding& holding : gpu.holdings) {
    if (holding.share == share) continue;
    if (holding.memory) {
      add(fmt::format("{} holds a quota of {}", holding.share, mete::ToString(*holding.memory)));
    } else if (holding.used.count > 0) {
      add(fmt::format("{} holds {} without a quota", holding.share, mete::ToString(holding.used)));
    }
  }
  for (const Foreigner& foreigner : gpu.foreigners) {
    const std::string program = foreigner.program.empty() ? "" : fmt::format(" ({})", foreigner.program);
    add(fmt::format("process {}{}, of no share, holds {}", foreigner.pid, program, mete::ToString(foreigner.used)));
  }
  return text.empty() ? "nobody else holds any" : text;
}

std::string WhoHoldsCompute(const GpuOccupancy& gpu, const std::string& share) {
  std::string text;
  for (const Holding& holding : gpu.holdings) {
    if (holding.share == share || !holding.compute) continue;
    text += fmt::format("{}{} holds {}", text.empty() ? "" : "; ", holding.share, ToString(*holding.compute));
  }
  return text.empty() ? "nobody else holds any" : text;
}

// In words a user can act on; rounded down so that what is named also fits.
std::string Fitting(uint64_t bytes) { return mete::ToString(Bytes{bytes >= kMiB ? bytes / kMiB * kMiB : bytes}); }

Status FitsMemory(const GpuOccupancy& gpu, const std::string& share, Bytes memory) {
  const uint64_t usable = Usable(gpu).count;
  const uint64_t largest = Minus(usable, TakenMemory(gpu, share));
  if (memory.count <= largest) return OkStatus();
  const std::string way =
      largest == 0 ? "no quota fits there now" : fmt::format("the largest quota that fits is {}", Fitting(largest));
  return Refused("{} cannot give {} of memory to {}: {} of its {} can be shared; {}; {}", Name(gpu),
                 mete::ToString(memory), share, Fitting(usable), mete::ToString(gpu.total), WhoHoldsMemory(gpu, share),
                 way);
}

Status FitsCompute(const GpuOccupancy& gpu, const std::string& share, const Compute& compute) {
  const uint32_t taken = TakenCompute(gpu, share);
  const uint32_t largest = taken < kFull ? kFull - taken : 0;
  if (compute.percent.hundredths <= largest) return OkStatus();
  const std::string way = largest == 0 ? "no compute promise fits there now; without --compute it takes what they leave"
                                       : fmt::format("the largest that fits is {}", mete::ToString(Percent{largest}));
  return Refused("{} cannot give {} of compute to {}: promises may not add up to more than 100 %; {}; {}", Name(gpu),
                 mete::ToString(compute.percent), share, WhoHoldsCompute(gpu, share), way);
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string KnownGpus(const Occupancy& occupancy) {
  std::string text;
  for (const GpuOccupancy& gpu : occupancy.gpus) {
    text += fmt::format("{}{} ({}, {})", text.empty() ? "" : "; ", gpu.index, gpu.uuid, gpu.name);
  }
  return text;
}

StatusOr<const GpuOccupancy*> FindGpu(const std::string& name, const Occupancy& occupancy) {
  for (const GpuOccupancy& gpu : occupancy.gpus) {
    if (IsNumber(name) ? std::to_string(gpu.index) == name : SameIgnoringCase(gpu.uuid, name)) return &gpu;
  }
  if (name.rfind("MIG-", 0) == 0) {
    return Refused("no share can be made on MIG device {} yet: the mechanism mig is not built; the GPUs here are {}",
                   name, KnownGpus(occupancy));
  }
  return NoSuch("there is no GPU {} here; there are {}", name, KnownGpus(occupancy));
}

GpuGrant GrantOn(const GpuOccupancy& gpu, const Request& request) {
  GpuOccupancy with = gpu;
  with.holdings.push_back({request.share, request.memory, request.compute, Bytes{}});
  return {gpu.index, gpu.uuid, request.memory, request.compute, Allot(with).back()};
}

}  // namespace

Bytes Usable(const GpuOccupancy& gpu) { return Bytes{Minus(gpu.total.count, gpu.reserved.count)}; }

Bytes LargestQuota(const GpuOccupancy& gpu) { return Bytes{Minus(Usable(gpu).count, TakenMemory(gpu, std::string()))}; }

const Holding* Unlimited(const GpuOccupancy& gpu) {
  const auto found = std::find_if(gpu.holdings.begin(), gpu.holdings.end(),
                                  [](const Holding& holding) { return holding.mechanism == "time-slicing"; });
  return found == gpu.holdings.end() ? nullptr : &*found;
}

Percent LargestCompute(const GpuOccupancy& gpu) {
  const uint32_t taken = TakenCompute(gpu, std::string());
  return Percent{taken < kFull ? kFull - taken : 0};
}

Status Fits(const GpuOccupancy& gpu, const std::string& share, std::optional<Bytes> memory,
            std::optional<Compute> compute) {
  if (gpu.mig_enabled) {
    return Refused(
        "{} is in MIG mode: intercept shares whole GPUs and MIG devices; name one of its MIG devices with --gpu, or "
        "another GPU",
        Name(gpu));
  }
  if (memory) {
    METE_RETURN_IF_ERROR(FitsMemory(gpu, share, *memory));
  } else if (Minus(Usable(gpu).count, TakenMemory(gpu, share)) == 0) {
    return Refused("{} has no memory left for {}: {} can be shared; {}", Name(gpu), share, Fitting(Usable(gpu).count),
                   WhoHoldsMemory(gpu, share));
  }
  return compute ? FitsCompute(gpu, share, *compute) : OkStatus();
}

StatusOr<Grant> Resolve(const Request& request, const Occupancy& occupancy) {
  METE_RETURN_IF_ERROR(CheckShareName(request.share));
  static const std::set<std::string, std::less<>> kUnbuilt = {"exclusive", "time-slicing", "mps", "mig", "vgpu"};
  if (kUnbuilt.count(request.via) != 0) {
    return Refused("the mechanism {} is not built yet; --via intercept is", request.via);
  }
  if (!request.via.empty() && request.via != "intercept") {
    return Usage("there is no mechanism {}; there are exclusive, time-slicing, mps, mig, vgpu, intercept", request.via);
  }
  if (request.gpus < 1) return Usage("--gpus {}: at least one GPU", request.gpus);
  if (occupancy.gpus.empty()) return Lacks("the driver reports no GPU on this node");
  if (!request.gpu.empty() && request.gpus != 1) {
    return Usage("--gpu {} names one GPU and --gpus {} asks for several: give one of them", request.gpu, request.gpus);
  }
  if (request.gpus_given && !request.memory && !request.compute) {
    return Refused(
        "--gpus alone asks for whole GPUs, which the mechanism exclusive gives, and that is not built yet; say with "
        "--memory or --compute how much of each GPU is needed");
  }
  if (static_cast<size_t>(request.gpus) > occupancy.gpus.size()) {
    return Refused("{} GPUs asked, and this node has {}", request.gpus, occupancy.gpus.size());
  }

  std::vector<const GpuOccupancy*> candidates;
  if (request.gpu.empty()) {
    for (const GpuOccupancy& gpu : occupancy.gpus) candidates.push_back(&gpu);
  } else {
    METE_ASSIGN_OR_RETURN(const GpuOccupancy* gpu, FindGpu(request.gpu, occupancy));
    candidates.push_back(gpu);
  }
  std::vector<const GpuOccupancy*> fitting;
  std::string reasons;
  for (const GpuOccupancy* gpu : candidates) {
    const Status fits = Fits(*gpu, request.share, request.memory, request.compute);
    if (fits.ok()) {
      fitting.push_back(gpu);
    } else {
      reasons += (reasons.empty() ? "" : "\n") + Message(fits);
    }
  }
  const auto wanted = static_cast<size_t>(request.gpus);
  if (fitting.size() < wanted) {
    if (wanted > 1) return Refused("{} of the {} GPUs asked can be had:\n{}", fitting.size(), wanted, reasons);
    return Refused("{}", reasons);
  }
  const bool tightest = request.memory.has_value();
  std::stable_sort(fitting.begin(), fitting.end(), [tightest](const GpuOccupancy* a, const GpuOccupancy* b) {
    if (tightest) return LargestQuota(*a) < LargestQuota(*b);
    return LargestQuota(*b) < LargestQuota(*a);
  });
  fitting.resize(wanted);
  std::sort(fitting.begin(), fitting.end(),
            [](const GpuOccupancy* a, const GpuOccupancy* b) { return a->index < b->index; });

  Grant grant;
  grant.share = request.share;
  grant.mechanism = "intercept";
  for (const GpuOccupancy* gpu : fitting) grant.gpus.push_back(GrantOn(*gpu, request));
  return grant;
}

std::vector<Allotment> Allot(const GpuOccupancy& gpu) {
  uint64_t promised = 0;
  uint32_t promised_compute = 0;
  uint64_t without_memory = 0;
  uint32_t without_compute = 0;
  for (const Holding& holding : gpu.holdings) {
    if (holding.memory)
      promised += holding.memory->count;
    else
      ++without_memory;
    if (holding.compute)
      promised_compute += holding.compute->percent.hundredths;
    else
      ++without_compute;
  }
  uint64_t cap = Minus(Usable(gpu).count, promised);
  // Several uncapped shares may race for the rest; but where somebody was promised memory, they may not do so at the
  // cost of that promise.
  if (promised > 0 && without_memory > 1) cap /= without_memory;
  uint32_t rest = promised_compute < kFull ? kFull - promised_compute : 0;
  if (without_compute > 1) rest /= without_compute;

  std::vector<Allotment> result;
  result.reserve(gpu.holdings.size());
  for (const Holding& holding : gpu.holdings) {
    Allotment allotment;
    allotment.quota = holding.memory ? *holding.memory : Bytes{cap};
    if (holding.compute) {
      allotment.mode = holding.compute->mode;
      allotment.share = holding.compute->percent.hundredths;
      allotment.weight = allotment.share;
    } else {
      allotment.weight = std::max<uint32_t>(rest, 1);
    }
    result.push_back(allotment);
  }
  return result;
}

Status CheckShareName(std::string_view name) {
  if (name.empty()) return Usage("a share's name may not be empty");
  if (name.size() > 32) return Usage("the share name {} is longer than 32 characters", name.substr(0, 40));
  const auto allowed = [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  const bool starts_well =
      std::islower(static_cast<unsigned char>(name[0])) != 0 || std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  if (!starts_well || !std::all_of(name.begin(), name.end(), allowed)) {
    std::string shown;
    for (const unsigned char c : name) shown += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
    return Usage("the share name '{}' may only have a-z, 0-9, '.', '_' and '-', and starts with a letter or digit",
                 shown);
  }
  return OkStatus();
}

StatusOr<Compute> ParseCompute(std::string_view text) {
  Compute compute{ComputeMode::kHard, {}};
  std::string_view percent = text;
  if (const size_t comma = text.find(','); comma != std::string_view::npos) {
    const std::string_view mode = text.substr(comma + 1);
    percent = text.substr(0, comma);
    if (mode == "soft") {
      compute.mode = ComputeMode::kSoft;
    } else if (mode != "hard") {
      return Usage("--compute {}: after the comma comes soft or hard", text);
    }
  }
  METE_ASSIGN_OR_RETURN(compute.percent, ParsePercent(percent));
  return compute;
}

std::string ToString(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::kHard: return "hard";
    case ComputeMode::kSoft: return "soft";
    case ComputeMode::kWorkConserving: return "work-conserving";
  }
  return "unknown";
}

StatusOr<OnBypass> ParseOnBypass(std::string_view text) {
  for (const OnBypass answer : {OnBypass::kReport, OnBypass::kFreeze, OnBypass::kKill}) {
    if (text == ToString(answer)) return answer;
  }
  return Usage("'{}' is no answer to a bypass: there are report, freeze and kill", text);
}

std::string ToString(OnBypass answer) {
  switch (answer) {
    case OnBypass::kReport: return "report";
    case OnBypass::kFreeze: return "freeze";
    case OnBypass::kKill: return "kill";
  }
  return "report";
}

StatusOr<TimeSlice> ParseTimeSlice(std::string_view text) {
  for (const TimeSlice slice : {TimeSlice::kDefault, TimeSlice::kShort, TimeSlice::kMedium, TimeSlice::kLong}) {
    if (text == ToString(slice)) return slice;
  }
  return Usage("'{}' is no class of time slices: there are default, short, medium and long", text);
}

std::string ToString(TimeSlice slice) {
  switch (slice) {
    case TimeSlice::kDefault: return "default";
    case TimeSlice::kShort: return "short";
    case TimeSlice::kMedium: return "medium";
    case TimeSlice::kLong: return "long";
  }
  return "default";
}

std::string ToString(const Compute& compute) {
  if (compute.mode == ComputeMode::kWorkConserving) return "work-conserving";
  return fmt::format("{} {}", mete::ToString(compute.percent), ToString(compute.mode));
}

}  // namespace mete::plan
