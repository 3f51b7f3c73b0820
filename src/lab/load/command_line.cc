#include "lab/load/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "lab/load/workloads.h"

namespace mete::lab {

namespace {

// What the options were written as, before they are checked.
struct Words {
  std::string memory, chunk, lookup = "dlsym", kernel = "compute";
};

void Kernels(CLI::App* app, LoadOptions* options) {
  app->add_option("--kernel-ms", options->kernel_ms, "length of one kernel alone on the GPU, ms (default 1)");
  app->add_option("--iterations", options->iterations,
                  "iterations that make this length, as 'calibrate' prints them; without it they are measured first");
  app->add_option("--grid", options->grid, "blocks of 256 threads (default: as many as the GPU holds at once)");
}

void Common(CLI::App* app, LoadOptions* options, Words* words) {
  app->add_option("--gpu", options->gpu, "index among the GPUs that CUDA shows (default 0)");
  app->add_option("--processes", options->processes, "start so many processes and sum their results (default 1)");
  app->add_option("--lookup", words->lookup, "how entry points are found: dlsym or proc-address (default dlsym)");
  app->add_flag("--json", options->json, "print the result as JSON");
  app->add_option("--ready-fd", options->ready_fd)->group("");
  app->add_option("--go-fd", options->go_fd)->group("");
  app->add_flag("--raw", options->raw)->group("");
  for (CLI::Option* option : app->get_options()) {
    if (option->get_expected_max() > 0) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

Status CheckNumbers(const LoadOptions& options) {
  auto bad = [](double value, double least, double most) {
    return !std::isfinite(value) || value < least || value > most;
  };
  if (bad(options.seconds, 0, 1e9)) return Usage("--seconds {}: from 0 to 1e9", options.seconds);
  if (bad(options.warmup, 0, 1e6) || bad(options.cooldown, 0, 1e6))
    return Usage("--warmup and --cooldown: from 0 to 1e6 seconds");
  if (bad(options.hold, 0, 1e9)) return Usage("--hold {}: from 0 to 1e9 seconds", options.hold);
  if (bad(options.kernel_ms, 1e-3, 1e5)) return Usage("--kernel-ms {}: from 0.001 to 100000", options.kernel_ms);
  if (bad(options.rate, 1e-3, 1e6)) return Usage("--rate {}: from 0.001 to 1000000 a second", options.rate);
  if (options.processes < 1 || options.processes > 4096)
    return Usage("--processes {}: from 1 to 4096", options.processes);
  if (options.streams < 1 || options.streams > 128) return Usage("--streams {}: from 1 to 128", options.streams);
  if (options.depth < 1 || options.depth > 1024) return Usage("--depth {}: from 1 to 1024", options.depth);
  if (options.grid > 0x7fffffff) return Usage("--grid {}: at most 2147483647", options.grid);
  if (options.iterations > UINT32_MAX) return Usage("--iterations {}: at most {}", options.iterations, UINT32_MAX);
  return OkStatus();
}

Status Finish(const Words& words, LoadOptions* options) {
  METE_RETURN_IF_ERROR(CheckNumbers(*options));
  if (!words.memory.empty()) {
    METE_ASSIGN_OR_RETURN(options->memory, ParseBytes(words.memory));
  }
  if (!words.chunk.empty()) {
    METE_ASSIGN_OR_RETURN(options->chunk, ParseBytes(words.chunk));
  }
  if (words.lookup == "proc-address") {
    options->lookup = Lookup::kProcAddress;
  } else if (words.lookup != "dlsym") {
    return Usage("--lookup {}: dlsym or proc-address", words.lookup);
  }
  if (words.kernel == "memory-stream") {
    options->stream_kernel = true;
  } else if (words.kernel != "compute") {
    return Usage("--kernel {}: compute or memory-stream", words.kernel);
  }
  auto known = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!known(HogApis(), options->api)) return Usage("--api {}: one of {}", options->api, fmt::join(HogApis(), ", "));
  if (!known(FaultKinds(), options->fault_kind)) {
    return Usage("--kind {}: one of {}", options->fault_kind, fmt::join(FaultKinds(), ", "));
  }
  return OkStatus();
}

std::string Number(const Json& value, const char* format) {
  if (!value.is_number()) return "too few samples";
  return fmt::format(fmt::runtime(format), value.get<double>());
}

}  // namespace

StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  LoadOptions& options = line.options;
  Words words;
  CLI::App app("Puts a known load on a GPU through the CUDA driver API, and says what came of it.", "mete-load");
  app.footer(
      "Exit status: 0 done, 2 the line is wrong, 4 no driver or GPU, 5 a CUDA error (named on stderr).\n"
      "gpu_ms in a result is the work done: kernels times the length of one alone on the GPU.");
  app.require_subcommand(1);

  CLI::App* compute = app.add_subcommand("compute", "arithmetic, always --depth kernels in flight");
  CLI::App* stream = app.add_subcommand("memory-stream", "copies in device memory, always --depth kernels in flight");
  for (CLI::App* loop : {compute, stream}) {
    Kernels(loop, &options);
    loop->add_option("--seconds", options.seconds, "measured time (default 10)");
    loop->add_option("--warmup", options.warmup, "seconds under load before the measured time (default 1)");
    loop->add_option("--cooldown", options.cooldown, "seconds under load after it (default 1)");
    loop->add_option("--streams", options.streams, "streams (default 1)");
    loop->add_option("--depth", options.depth, "kernels in flight a stream (default 8)");
    loop->add_flag("--progress", options.progress, "a line of JSON a second with the kernels done so far");
  }
  stream->add_option("--memory", words.memory, "both buffers together (default 256MiB)");

  CLI::App* infer = app.add_subcommand("infer", "requests at planned instants (open loop), with latencies");
  Kernels(infer, &options);
  infer->add_option("--rate", options.rate, "requests a second, on average; Poisson arrivals (default 100)");
  infer->add_option("--seed", options.seed, "of the arrivals (default 1)");
  infer->add_option("--seconds", options.seconds, "how long (default 10)");

  CLI::App* hog = app.add_subcommand("hog", "allocates until it is refused");
  hog->add_option("--api", options.api,
                  "the allocating call: " + fmt::format("{}", fmt::join(HogApis(), ", ")) + " (default alloc)");
  hog->add_option("--chunk", words.chunk, "size of a block; halved down to 2 MiB once it is refused (default 256MiB)");
  hog->add_option("--hold", options.hold, "seconds to keep it (default 0)");

  CLI::App* idle = app.add_subcommand("idle", "holds memory and does nothing");
  idle->add_option("--memory", words.memory, "how much (default 256MiB)");
  idle->add_option("--seconds", options.seconds, "how long (default 10)");

  CLI::App* fault = app.add_subcommand("fault", "a kernel that the GPU must stop");
  fault->add_option("--kind", options.fault_kind,
                    fmt::format("{} (default illegal-address)", fmt::join(FaultKinds(), ", ")));

  CLI::App* calibrate = app.add_subcommand("calibrate", "prints the iterations that make --kernel-ms on this GPU");
  Kernels(calibrate, &options);
  calibrate->add_option("--kernel", words.kernel, "compute or memory-stream (default compute)");
  calibrate->add_option("--memory", words.memory, "memory-stream: both buffers together (default 256MiB)");

  const std::vector<std::pair<CLI::App*, Workload>> workloads = {
      {compute, Workload::kCompute},    {stream, Workload::kMemoryStream},
      {infer, Workload::kInfer},        {hog, Workload::kHog},
      {idle, Workload::kIdle},          {fault, Workload::kFault},
      {calibrate, Workload::kCalibrate}};
  for (auto& [sub, workload] : workloads) Common(sub, &options, &words);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    for (auto& [sub, workload] : workloads) {
      if (sub->parsed()) line.help = sub->help(app.get_name());
    }
    if (line.help.empty()) line.help = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    return Usage("{}. Try 'mete-load --help'", error.what());
  }
  for (auto& [sub, workload] : workloads) {
    if (sub->parsed()) options.workload = workload;
  }
  METE_RETURN_IF_ERROR(Finish(words, &options));
  return line;
}

std::string ForPeople(const Json& result) {
  std::string workload = result["workload"];
  std::string who = fmt::format("{}{}, {} process{}", result["gpu"].get<std::string>(),
                                result.contains("emulated") ? " (emulated)" : "", result["processes"].get<uint64_t>(),
                                result["processes"].get<uint64_t>() == 1 ? "" : "es");
  auto bytes = [&] { return ToString(Bytes{result["bytes"].get<uint64_t>()}); };
  if (workload == "compute" || workload == "memory-stream") {
    double seconds = result["seconds"], gpu_ms = result["gpu_ms"];
    std::string rate;
    if (result.contains("bytes") && seconds > 0)
      rate = fmt::format(", {:.0f} GB/s", result["bytes"].get<double>() / seconds / 1e9);
    return fmt::format("{} on {}: {} kernels of {:.3f} ms in {:.2f} s: {:.1f} % of the GPU's time{}", workload, who,
                       result["kernels"].get<uint64_t>(), result["kernel_ms"].get<double>(), seconds,
                       seconds > 0 ? gpu_ms / seconds / 10 : 0.0, rate);
  }
  if (workload == "infer") {
    const Json& response = result["response_ms"];
    return fmt::format("infer on {}: {} requests at {:g}/s; response p50 {} ms, p95 {} ms, p99 {} ms", who,
                       result["requests"].get<uint64_t>(), result["rate"].get<double>(),
                       Number(response["p50"], "{:.3f}"), Number(response["p95"], "{:.3f}"),
                       Number(response["p99"], "{:.3f}"));
  }
  if (workload == "hog") {
    return fmt::format("hog on {}: {} in {} blocks by {}, then {}", who, bytes(), result["blocks"].get<uint64_t>(),
                       result["api"].get<std::string>(),
                       result["error"].is_null() ? "stopped" : result["error"].get<std::string>());
  }
  if (workload == "idle") return fmt::format("idle on {}: holds {}", who, bytes());
  if (workload == "fault") {
    return fmt::format("fault on {}: {}: {}", who, result["kind"].get<std::string>(),
                       result["error"].is_null() ? "no error" : result["error"].get<std::string>());
  }
  return fmt::format("{} iterations make {:.4f} ms of {} on {}", result["iterations"].get<uint64_t>(),
                     result["kernel_ms"].get<double>(), result["kernel"].get<std::string>(), who);
}

}  // namespace mete::lab
