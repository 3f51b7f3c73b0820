// The program mete-emulator. `mete emulate …` runs it, so it speaks by that name.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "emulator/engine/commands.h"

namespace {

using mete::ExitCode;
using mete::emulator::EngineOptions;
using mete::emulator::UpOptions;

int Fail(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "mete: %s: %s\n", mete::ExitWord(code), message.c_str());
  return static_cast<int>(code);
}

int Finish(const mete::Status& status) {
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
  up->add_option("--without", up_options.without, "Leave out an emulated library")->group("");
  up->add_flag("--json", up_options.json, "Print JSON");

  CLI::App* down = app.add_subcommand("down", "End a node and remove what 'up' made");
  CLI::App* status = app.add_subcommand("status", "What a node is doing");
  CLI::App* env = app.add_subcommand("env", "Print exports for running programs on a node without mete, for eval");
  for (CLI::App* command : {down, status, env}) {
    command->add_option("--dir", dir, "Folder of the node (default: the one that is up)");
  }
  for (CLI::App* command : {down, status}) command->add_flag("--json", json, "Print JSON");

  EngineOptions engine_options;
  CLI::App* engine = app.add_subcommand("_engine", "The engine process")->group("");
  engine->add_option("--root", engine_options.root)->required();
  engine->add_option("--gpus", engine_options.gpus)->required();
  engine->add_option("--driver", engine_options.driver)->required();
  engine->add_option("--backing", engine_options.backing_bytes)->required();
  engine->add_option("--lock-fd", engine_options.lock_fd)->required();
  engine->add_option("--ready-fd", engine_options.ready_fd)->required();
  engine->add_flag("--made-root", engine_options.made_root);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return Fail(ExitCode::kUsage, std::string(error.what()) + "; 'mete emulate --help' shows the ways to write it");
  }
  if (*up) return Finish(mete::emulator::Up(up_options));
  if (*down) return Finish(mete::emulator::Down(dir, json));
  if (*status) return Finish(mete::emulator::ShowStatus(dir, json));
  if (*env) return Finish(mete::emulator::ShowEnvironment(dir));
  return mete::emulator::RunEngine(engine_options);
}
