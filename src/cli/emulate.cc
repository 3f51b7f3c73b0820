// `mete emulate …` is a program of its own, mete-emulator beside this one: the emulator is never linked into mete.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/commands.h"

namespace mete::cli {
namespace {

StatusOr<int> RunEmulate(const std::vector<std::string>& words) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Lacks("cannot find where mete is installed: /proc/self/exe: {}", error.message());
  const std::string program = self.parent_path() / "mete-emulator";
  std::vector<std::string> arguments{"mete emulate"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return Lacks("the emulator cannot be started: {}: {}; it is built and installed together with mete", program,
               std::strerror(errno));
}

}  // namespace

const Command kEmulate{"emulate", "an emulated GPU node: up, down, status, env, fault", Group::kNode, RunEmulate};

}  // namespace mete::cli
