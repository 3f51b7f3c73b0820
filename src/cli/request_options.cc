#include "cli/request_options.h"

#include "plan/resolve.h"

namespace mete::cli {

void RequestOptions::AddTo(CLI::App& app) {
  app.add_option("--gpu", gpu, "On this GPU: NVML's index or a UUID (else one on which it fits)")
      ->option_text("N|UUID");
  app.add_option("--gpus", gpus, "That much on each of N GPUs")->option_text("N");
  app.add_option("--memory", memory, "Memory quota, for example 4GiB (else what was not promised to others)")
      ->option_text("SIZE");
  app.add_option("--compute", compute, "Never more than PCT; with ',soft': at least PCT (else what others leave)")
      ->option_text("PCT[,soft|,hard]");
  app.add_option("--via", via, "By this mechanism (else mete chooses)")->option_text("MECHANISM");
  app.add_option("--on-bypass", on_bypass,
                 "What is done about processes that hold memory past the library that keeps the quota: report (else), "
                 "freeze or kill")
      ->option_text("ANSWER");
  app.add_flag("--preload", preload, "Also set LD_PRELOAD, for programs that open the driver by its path");
}

Status RequestOptions::Read(share::Command* command) const {
  command->request.gpu = gpu;
  command->request.via = via;
  command->preload = preload;
  if (gpus) {
    if (*gpus < 1 || *gpus > 1024) {
      return Usage("--gpus {}: how many GPUs, from 1 to 1024; a certain one is named by --gpu {}", *gpus,
                   *gpus == 0 ? "0" : "INDEX");
    }
    command->request.gpus = *gpus;
    command->request.gpus_given = true;
  }
  if (!memory.empty()) {
    METE_ASSIGN_OR_RETURN(command->request.memory, ParseBytes(memory));
  }
  if (!compute.empty()) {
    METE_ASSIGN_OR_RETURN(command->request.compute, plan::ParseCompute(compute));
  }
  if (!on_bypass.empty()) {
    METE_ASSIGN_OR_RETURN(command->on_bypass, plan::ParseOnBypass(on_bypass));
  }
  return OkStatus();
}

StatusOr<share::Change<Bytes>> ReadMemoryChange(const std::string& text) {
  if (text.empty()) return share::Change<Bytes>{};
  if (text == "none") return share::Change<Bytes>{true, std::nullopt};
  METE_ASSIGN_OR_RETURN(const Bytes bytes, ParseBytes(text));
  return share::Change<Bytes>{true, bytes};
}

StatusOr<share::Change<plan::Compute>> ReadComputeChange(const std::string& text) {
  if (text.empty()) return share::Change<plan::Compute>{};
  if (text == "none") return share::Change<plan::Compute>{true, std::nullopt};
  METE_ASSIGN_OR_RETURN(const plan::Compute compute, plan::ParseCompute(text));
  return share::Change<plan::Compute>{true, compute};
}

}  // namespace mete::cli
