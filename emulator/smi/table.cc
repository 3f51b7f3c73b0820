#include "emulator/smi/table.h"

#include <cstdarg>
#include <cstdio>

namespace mete::emulator::smi {

namespace {

constexpr size_t kWide = 89, kLeft = 41, kMiddle = 24, kRight = 22;  // columns between the bars

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[512];
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

std::string Fit(std::string text, size_t width) {
  text.resize(width, ' ');
  return text;
}

std::string Rule(char line) {
  char cross = '+';
  std::string edge(1, line == '=' ? '|' : '+');
  return edge + std::string(kLeft, line) + cross + std::string(kMiddle, line) + cross + std::string(kRight, line) +
         edge + "\n";
}
std::string WideRule(char line) {
  std::string edge(1, line == '=' ? '|' : '+');
  return edge + std::string(kWide, line) + edge + "\n";
}
std::string Row(const std::string& left, const std::string& middle, const std::string& right) {
  return "|" + Fit(left, kLeft) + "|" + Fit(middle, kMiddle) + "|" + Fit(right, kRight) + "|\n";
}
std::string WideRow(const std::string& text) { return "|" + Fit(text, kWide) + "|\n"; }

template <typename T>
std::string Unit(const std::optional<T>& value, const char* unit, uint64_t divisor = 1) {
  if (!value) return "N/A";
  return std::to_string(static_cast<uint64_t>(*value) / divisor) + unit;
}

std::string Mode(const std::optional<int>& mode) {
  constexpr const char* kShort[] = {"Default", "E. Thread", "Prohibited", "E. Process"};
  return mode && *mode >= 0 && *mode < 4 ? kShort[*mode] : "N/A";
}

std::string VolatileErrors(const SmiGpu& gpu) {
  const SmiEcc& ecc = gpu.ecc_volatile;
  if (!ecc.dram_uncorrected && !ecc.sram_uncorrected) return "N/A";
  return std::to_string(ecc.dram_uncorrected.value_or(0) + ecc.sram_uncorrected.value_or(0));
}

std::string GpuRows(const SmiGpu& gpu) {
  auto on = [](const std::optional<int>& value) { return !value ? "N/A" : *value != 0 ? "On" : "Off"; };
  std::string pstate = gpu.pstate ? "P" + std::to_string(*gpu.pstate) : "N/A";
  std::string ecc = !gpu.ecc ? "N/A" : *gpu.ecc == 0 ? "Off" : VolatileErrors(gpu);
  std::string mig = !gpu.mig ? "N/A" : *gpu.mig != 0 ? "Enabled" : "Disabled";
  std::string rows;
  if (gpu.lost) {
    rows += Row(Format(" %3u  %-27s%6s  ", gpu.index, gpu.name.substr(0, 27).c_str(), "ERR!"),
                Format("   %16s %3s ", gpu.bus_id.c_str(), "ERR!"), Format(" %20s ", "ERR!"));
    rows += Row(" ERR! ERR!  ERR!            ERR! /  ERR! ", "        GPU is lost      ", "    ERR!         ERR! ");
    return rows + Row("", "", Format(" %20s ", "ERR!"));
  }
  rows += Row(Format(" %3u  %-27s%6s  ", gpu.index, gpu.name.substr(0, 27).c_str(), on(gpu.persistence)),
              Format("   %16s %3s ", gpu.bus_id.c_str(), on(gpu.display_active)), Format(" %20s ", ecc.c_str()));
  rows += Row(Format(" %-4s %4s  %4s          %6s / %5s ", Unit(gpu.fan_percent, "%").c_str(),
                     Unit(gpu.temperature_c, "C").c_str(), pstate.c_str(), Unit(gpu.power_mw, "W", 1000).c_str(),
                     Unit(gpu.enforced_limit_mw, "W", 1000).c_str()),
              Format("%11s / %9s ", Unit(gpu.memory_used, "MiB", 1 << 20).c_str(),
                     Unit(gpu.memory_total, "MiB", 1 << 20).c_str()),
              Format(" %7s %12s ", Unit(gpu.utilization_gpu, "%").c_str(), Mode(gpu.compute_mode).c_str()));
  rows += Row("", "", Format(" %20s ", mig.c_str()));
  return rows;
}

}  // namespace

std::string Table(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, const std::string& date) {
  std::string cuda =
      std::to_string(snapshot.cuda_version / 1000) + "." + std::to_string(snapshot.cuda_version % 1000 / 10);
  std::string text = date + "\n" + WideRule('-');
  text += WideRow(Format(" NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-7s ", snapshot.driver_version.c_str(),
                         snapshot.driver_version.c_str(), cuda.c_str()));
  text += Rule('-');
  text += Row(" GPU  Name                 Persistence-M ", " Bus-Id          Disp.A ", " Volatile Uncorr. ECC ");
  text += Row(" Fan  Temp   Perf          Pwr:Usage/Cap ", "           Memory-Usage ", " GPU-Util  Compute M. ");
  text += Row("", "", "               MIG M. ");
  text += Rule('=');
  for (size_t gpu : chosen) text += GpuRows(snapshot.gpus[gpu]) + Rule('-');

  text += "\n" + WideRule('-');
  text += WideRow(" Processes:");
  text += WideRow("  GPU   GI   CI              PID   Type   Process name                        GPU Memory ");
  text += WideRow("        ID   ID                                                               Usage      ");
  text += WideRule('=');
  size_t processes = 0;
  for (size_t chosen_gpu : chosen) {
    const SmiGpu& gpu = snapshot.gpus[chosen_gpu];
    for (const SmiProcess& process : gpu.processes) {
      std::string name = process.name;
      if (name.size() > 34) name = "..." + name.substr(name.size() - 31);
      text += WideRow(Format(" %4u   N/A  N/A %16u      C   %-34s %10s ", gpu.index, process.pid, name.c_str(),
                             Unit(process.used_bytes, "MiB", 1 << 20).c_str()));
      ++processes;
    }
  }
  if (processes == 0) text += WideRow("  No running processes found");
  return text + WideRule('-');
}

std::string List(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen) {
  std::string text;
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    text += "GPU " + std::to_string(gpu.index) + ": " + gpu.name + " (UUID: " + gpu.uuid + ")\n";
  }
  return text;
}

}  // namespace mete::emulator::smi
