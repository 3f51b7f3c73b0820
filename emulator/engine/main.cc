// The program mete-emulator. `mete emulate …` runs it, so it speaks by that name.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/output.h"
#include "emulator/engine/commands.h"

namespace {

using mete::ExitCode;
using mete::emulator::EngineOptions;
using mete::emulator::UpOptions;

int Fail(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "mete: %s: %s\n", mete::ExitWord(code), message.c_str());
  return static_cast<int>(code);
}

int Finish(mete::Status status) {
  if (const mete::Status written = mete::FinishOutput(); status.ok()) status = written;
  return status.ok() ? 0 : Fail(mete::ExitCodeFor(status), mete::Message(status));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"An emulated GPU node: NVIDIA's documented interfaces on a machine without a GPU", "mete emulate"};
  app.require_subcommand(1);
  std::string dir;
  bool json = false;

  UpOptions up_options;
  CLI::App* up = app.add_subcommand("up", "Bring up a node");
  up->add_option("--gpus", up_options.gpus, "Boards separated by commas, such as A100-SXM4-40GB,T4 or 2xT4")
      ->required();
  up->add_option("--dir", up_options.dir,
                 "Folder of the node: empty or not there yet (default: in the runtime folder)");
  up->add_option("--driver", up_options.driver, "Driver branch")->capture_default_str();
  up->add_option("--backing", up_options.backing,
                 "Real memory for the content of device memory, such as 2GiB (default: a "
                 "quarter of the machine's)");
  up->add_option("--boards", up_options.boards, "Folder with further boards: boards.yaml and emulator.yaml")
      ->check(CLI::ExistingDirectory);
  // For tests only, and only of mete-emulator itself: no command of mete's sets it.
  up->add_option("--test-without", up_options.test_without, "Leave out a rule of the engine")->group("");
  up->add_option("--without", up_options.without, "Leave out an emulated library")->group("");
  up->add_flag("--json", up_options.json, "Print JSON");

  CLI::App* down = app.add_subcommand("down", "End a node and remove what 'up' made");
  CLI::App* status = app.add_subcommand("status", "What a node is doing");
  CLI::App* env = app.add_subcommand("env", "Print exports for running programs on a node without mete, for eval");
  for (CLI::App* command : {down, status, env}) {
    command->add_option("--dir", dir, "Folder of the node (default: the one that is up)");
  }
  for (CLI::App* command : {down, status}) command->add_flag("--json", json, "Print JSON");

  mete::emulator::FaultOptions fault_options;
  CLI::App* fault = app.add_subcommand("fault", "Break a GPU of a node on purpose, or heal it");
  fault->add_option("KIND", fault_options.kind,
                    "xid, ecc-correctable, ecc-uncorrectable, row-remap-pending, row-remap-failure, lost, off-bus, "
                    "throttle, slow-memory, hang or driver-restart");
  fault->add_option("ARGUMENT", fault_options.argument, "The number of the Xid; thermal or power of throttle");
  fault->add_option("--dir", fault_options.dir, "Folder of the node (default: the one that is up)");
  fault->add_option("--gpu", fault_options.gpu, "Index, UUID or PCI id (default: the process's, else 0)");
  fault->add_option("--pid", fault_options.pid, "The process that it befalls");
  fault->add_option("--after", fault_options.after, "Not now, but in so long, such as 500ms, 10s or 5m");
  fault->add_option("--probability", fault_options.probability, "Of happening within a second, again and again");
  fault->add_option("--seed", fault_options.seed, "Of the instants that --probability draws")->capture_default_str();
  fault->add_option("--count", fault_options.count, "Errors at once, of ecc-correctable")->capture_default_str();
  fault->add_option("--factor", fault_options.factor, "What is left of clock or bandwidth (default: 0.5)");
  fault->add_flag("--uncontained", fault_options.uncontained, "The memory error hits everybody (Xid 95)");
  fault->add_flag("--list", fault_options.list, "What is broken, what is due, what has happened");
  fault->add_option("--clear", fault_options.clear_id, "Heal everything, or take back the fault of that number")
      ->expected(0, 1)
      ->default_str("all");
  fault->add_flag("--json", fault_options.json, "Print JSON");

  EngineOptions engine_options;
  CLI::App* engine = app.add_subcommand("_engine", "The engine process")->group("");
  engine->add_option("--root", engine_options.root)->required();
  engine->add_option("--gpus", engine_options.gpus)->required();
  engine->add_option("--driver", engine_options.driver)->required();
  engine->add_option("--backing", engine_options.backing_bytes)->required();
  engine->add_option("--lock-fd", engine_options.lock_fd)->required();
  engine->add_option("--ready-fd", engine_options.ready_fd)->required();
  engine->add_option("--boards", engine_options.boards);
  engine->add_option("--test-without", engine_options.test_without);
  engine->add_flag("--made-root", engine_options.made_root);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help
      mete::Print(app.help());
      return Finish(mete::OkStatus());
    }
    const std::vector<CLI::App*> named = app.get_subcommands();
    const std::string help = "mete emulate " + (named.empty() ? "" : named.front()->get_name() + " ") + "--help";
    // The library says of an unknown word only that a known one is missing.
    const bool unknown = named.empty() && argc > 1 && argv[1][0] != '-';
    const std::string what = unknown ? "there is no 'mete emulate " + std::string(argv[1]) + "'" : error.what();
    return Fail(ExitCode::kUsage, what + "; '" + help + "' shows the ways to write it");
  }
  if (*up) return Finish(mete::emulator::Up(up_options));
  if (*down) return Finish(mete::emulator::Down(dir, json));
  if (*status) return Finish(mete::emulator::ShowStatus(dir, json));
  if (*env) return Finish(mete::emulator::ShowEnvironment(dir));
  if (*fault) return Finish(mete::emulator::BreakNode(fault_options));
  return mete::emulator::RunEngine(engine_options);
}
