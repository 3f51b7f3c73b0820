#include "emulator/simulate/workload.h"

#include "emulator/simulate/reader.h"

namespace mete::emulator {

namespace embedded {
extern const std::string_view kWorkloads;
}  // namespace embedded

namespace {

constexpr size_t kMostSteps = 100'000;
constexpr const char* kClasses[kInstructionClasses] = {"alu",        "fp32",   "fp64",   "special",
                                                       "load_store", "shared", "atomic", "control"};

Step ReadStep(Reader& reader) {
  reader.Keys({"name", "times", "host_us", "copy", "mib", "blocks", "threads", "registers", "shared_kib",
               "warp_instructions", "memory_kib", "working_set_mib", "critical_cycles"});
  Step step;
  if (reader.Has("host_us")) {
    step.host_ns = static_cast<uint64_t>(reader.Number("host_us", 1, 0.001, 60e6) * 1e3);
    return step;
  }
  if (reader.Has("copy")) {
    const size_t direction = reader.OneOf("copy", {"to-device", "to-host", "on-device"});
    step.work.kind =
        static_cast<WorkKind>(static_cast<uint32_t>(WorkKind::kCopyHostToDevice) + static_cast<uint32_t>(direction));
    step.work.bytes = static_cast<uint64_t>(reader.Number("mib", 1, 0, 1e6) * (1 << 20));
    if (!reader.Has("mib")) reader.Fail("a copy needs mib");
    return step;
  }
  step.work.kind = WorkKind::kKernel;
  KernelCost& cost = step.work.kernel;
  if (!reader.Has("blocks") || !reader.Has("threads"))
    reader.Fail("a step is a kernel (blocks, threads), a copy or host_us");
  cost.blocks = reader.Whole<uint64_t>("blocks", 1, 1, 1e12);
  cost.threads_per_block = reader.Whole<uint32_t>("threads", 1, 1, 1024);
  cost.registers_per_thread = reader.Whole<uint32_t>("registers", 32, 1, 255);
  cost.shared_bytes_per_block = static_cast<uint32_t>(reader.Number("shared_kib", 0, 0, 1024) * 1024);
  cost.memory_bytes = reader.Number("memory_kib", 0, 0, 1e12) * 1024;
  cost.working_set_bytes = reader.Number("working_set_mib", 0, 0, 1e9) * (1 << 20);
  cost.critical_cycles = reader.Number("critical_cycles", 0, 0, 1e15);
  if (reader.Has("warp_instructions")) {
    Reader classes = reader.In(reader.At("warp_instructions"), "warp_instructions");
    classes.Keys({"alu", "fp32", "fp64", "special", "load_store", "shared", "atomic", "control"});
    for (uint32_t i = 0; i < kInstructionClasses; ++i) {
      cost.warp_instructions[i] = classes.Number(kClasses[i], 0, 0, 1e15);
    }
  }
  return step;
}

Workload ReadWorkload(Reader reader) {
  reader.Keys({"id", "what", "est", "src", "steps", "repeat"});
  Workload workload;
  workload.id = reader.Text("id");
  workload.what = reader.Text("what");
  if (workload.id.empty() || workload.what.empty()) reader.Fail("a workload needs id and what");
  reader.Flag("est", false);
  if (!reader.Has("src")) reader.Fail("a workload needs src: where its numbers are from");
  const auto repeat = reader.Whole<uint64_t>("repeat", 1, 1, 1e6);
  std::vector<Step> once;
  reader.Each("steps", [&](Reader item) {
    const Step step = ReadStep(item);
    const auto times = item.Whole<uint64_t>("times", 1, 1, 1e6);
    for (uint64_t i = 0; i < times && once.size() <= kMostSteps; ++i) once.push_back(step);
  });
  if (once.empty()) reader.Fail("a workload needs steps");
  if (once.size() * repeat > kMostSteps) {
    reader.Fail(fmt::format("more than {} steps, with times and repeat written out", kMostSteps));
    return workload;
  }
  for (uint64_t i = 0; i < repeat; ++i) workload.steps.insert(workload.steps.end(), once.begin(), once.end());
  return workload;
}

}  // namespace

Status ReadWorkloads(const std::string& text, const std::string& file, Workloads* all) {
  Status status = OkStatus();
  try {
    Reader reader(YAML::Load(text), file, "", &status);
    reader.Keys({"schema", "collected", "sources", "notes", "workloads"});
    if (reader.Text("schema") != "mete/workloads/1") reader.Fail("schema must be mete/workloads/1");
    if (!reader.Has("workloads")) reader.Fail("has no workloads");
    reader.Each("workloads", [&](const Reader& item) {
      Workload workload = ReadWorkload(item);
      if (item.ok()) (*all)[workload.id] = std::move(workload);
    });
  } catch (const YAML::Exception& error) {  // the library's; not let out
    return Usage("{}:{}: not YAML: {}", file, error.mark.line + 1, error.msg);
  }
  return status;
}

const Workloads& BuiltInWorkloads() {
  static const Workloads workloads = [] {
    Workloads all;
    const Status status = ReadWorkloads(std::string(embedded::kWorkloads), "workloads.yaml", &all);
    return status.ok() ? all : Workloads{};
  }();
  return workloads;
}

}  // namespace mete::emulator
