#include "cli/request_options.h"

#include "plan/choice.h"
#include "plan/resolve.h"

namespace mete::cli {

void RequestOptions::AddTo(CLI::App& app) {
  app.add_option("--gpu", gpu, "On this GPU (NVML's index or a UUID) or MIG device (else one on which it fits)")
      ->option_text("N|UUID");
  app.add_option("--gpus", gpus, "That much on each of N GPUs")->option_text("N");
  app.add_option("--memory", memory, "Memory quota, for example 4GiB (else what was not promised to others)")
      ->option_text("SIZE");
  app.add_option("--compute", compute, "Never more than PCT; with ',soft': at least PCT (else what others leave)")
      ->option_text("PCT[,soft|,hard]");
  app.add_option("--need", need, "Promises that must be kept ('mete explain' lists them)")
      ->option_text("PROMISE[,PROMISE…]");
  app.add_option("--time-slice", time_slice,
                 "Class of the GPU's time slices, of time-slicing: default, short, medium or long")
      ->option_text("CLASS");
  app.add_option("--processes", processes,
                 "How many processes use the GPU at a time; with 1 the driver keeps others off a whole GPU")
      ->option_text("N");
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
  if (!need.empty()) {
    METE_ASSIGN_OR_RETURN(command->need, plan::ParseNeed(need));
  }
  if (!time_slice.empty()) {
    METE_ASSIGN_OR_RETURN(command->request.time_slice, plan::ParseTimeSlice(time_slice));
  }
  if (processes) {
    if (*processes < 1 || *processes > 1'000'000)
      return Usage("--processes {}: a number from 1 to 1000000", *processes);
    command->request.processes = *processes;
  }
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
