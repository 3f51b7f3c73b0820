// The options with which a command says what a share is to have: --gpu, --gpus, --memory, --compute, --need,
// --via, --time-slice, --processes, --on-bypass, --preload.
// Values; one thread.
#ifndef METE_CLI_REQUEST_OPTIONS_H_
#define METE_CLI_REQUEST_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "share/protocol.h"

namespace mete::cli {

struct RequestOptions {
  std::string gpu, memory, compute, via, need, time_slice;
  std::optional<int> processes;
  std::optional<int> gpus;
  std::string on_bypass;
  bool preload = false;

  void AddTo(CLI::App& app);
  bool any() const {
    return !gpu.empty() || !memory.empty() || !compute.empty() || !via.empty() || gpus.has_value() || !need.empty() ||
           !time_slice.empty() || processes.has_value();
  }
  // Fills in command.request; Usage for what cannot be read.
  Status Read(share::Command* command) const;
};

// "none" drops the promise, anything else asks for it (Usage for what cannot be read).
StatusOr<share::Change<Bytes>> ReadMemoryChange(const std::string& text);
StatusOr<share::Change<plan::Compute>> ReadComputeChange(const std::string& text);

}  // namespace mete::cli

#endif  // METE_CLI_REQUEST_OPTIONS_H_
