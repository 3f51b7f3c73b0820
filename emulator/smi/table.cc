#include "emulator/smi/table.h"

#include <algorithm>

#include "emulator/smi/words.h"

namespace mete::emulator::smi {

namespace {

constexpr size_t kWide = 89, kLeft = 41, kMiddle = 24, kRight = 22;  // columns between the bars
constexpr size_t kMigIds = 18, kMigMemory = 34, kMigSms = 11, kMigEngines = 23;

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

bool MigIsOn(const SmiGpu& gpu) { return gpu.mig.value_or(0) != 0; }

std::string GpuRows(const SmiGpu& gpu) {
  auto on = [](const std::optional<int>& value) { return !value ? "N/A" : *value != 0 ? "On" : "Off"; };
  std::string pstate = gpu.pstate ? "P" + std::to_string(*gpu.pstate) : "N/A";
  // With MIG on, errors are counted by instance, and the mode is shown here.
  std::string ecc = !gpu.ecc ? "N/A" : *gpu.ecc == 0 ? "Off" : MigIsOn(gpu) ? "On" : VolatileErrors(gpu);
  std::string mig = !gpu.mig ? "N/A" : *gpu.mig != 0 ? "Enabled" : "Disabled";
  std::string rows;
  if (gpu.lost) {
    rows += Row(Printed(" %3u  %-27s%6s  ", gpu.index, gpu.name.substr(0, 27).c_str(), "ERR!"),
                Printed("   %16s %3s ", gpu.bus_id.c_str(), "ERR!"), Printed(" %20s ", "ERR!"));
    rows += Row(" ERR! ERR!  ERR!            ERR! /  ERR! ", "        GPU is lost      ", "    ERR!         ERR! ");
    return rows + Row("", "", Printed(" %20s ", "ERR!"));
  }
  rows += Row(Printed(" %3u  %-27s%6s  ", gpu.index, gpu.name.substr(0, 27).c_str(), on(gpu.persistence)),
              Printed("   %16s %3s ", gpu.bus_id.c_str(), on(gpu.display_active)), Printed(" %20s ", ecc.c_str()));
  rows += Row(Printed(" %-4s %4s  %4s          %6s / %5s ", Unit(gpu.fan_percent, "%").c_str(),
                      Unit(gpu.temperature_c, "C").c_str(), pstate.c_str(), Unit(gpu.power_mw, "W", 1000).c_str(),
                      Unit(gpu.enforced_limit_mw, "W", 1000).c_str()),
              gpu.memory_denied ? Printed("%21s", "N/A")
                                : Printed("%11s / %9s ", Unit(gpu.memory_used, "MiB", 1 << 20).c_str(),
                                          Unit(gpu.memory_total, "MiB", 1 << 20).c_str()),
              Printed(" %7s %12s ", Unit(gpu.utilization_gpu, "%").c_str(), Mode(gpu.compute_mode).c_str()));
  rows += Row("", "", Printed(" %20s ", mig.c_str()));
  return rows;
}

std::string MigRow(const std::string& ids, const std::string& memory, const std::string& sms,
                   const std::string& engines) {
  return "|" + Fit(ids, kMigIds) + "|" + Fit(memory, kMigMemory) + "|" + Fit(sms, kMigSms) + "|" +
         Fit(engines, kMigEngines) + "|\n";
}
// `whole`: the next row is another GPU instance; the compute instances of one share a cell of memory.
std::string DeviceRule(char line, bool whole = true) {
  const char edge = line == '=' ? '|' : '+';
  const auto part = [line](size_t width) { return std::string(width, line); };
  return edge + part(kMigIds) + "+" + (whole ? part(kMigMemory) : std::string(kMigMemory, ' ')) + "+" + part(kMigSms) +
         "+" + part(kMigEngines) + edge + "\n";
}

std::string Count(const std::optional<uint32_t>& value) { return Unit(value, ""); }
std::string OfTotal(const std::optional<uint64_t>& used, const std::optional<uint64_t>& total) {
  return Printed("%19s / %8s ", Unit(used, "MiB", 1 << 20).c_str(), Unit(total, "MiB", 1 << 20).c_str());
}

std::string MigDeviceRows(uint32_t gpu, const SmiMigDevice& device, bool first) {
  std::string memory, bar1;
  if (first) {
    memory = OfTotal(device.memory_used, device.memory_total);
    bar1 = OfTotal(device.bar1_used, device.bar1_total);
  }
  const std::string errors = device.sram_uncorrected ? std::to_string(*device.sram_uncorrected) : "N/A";
  return MigRow(Printed("%3u%5u%4u%4u", gpu, device.gpu_instance, device.compute_instance, device.index), memory,
                Printed(" %-3s%6s", Count(device.sm_count).c_str(), errors.c_str()),
                Printed("%3s%4s%5s%5s%5s", Count(device.copy_engines).c_str(), Count(device.encoders).c_str(),
                        Count(device.decoders).c_str(), Count(device.ofa).c_str(), Count(device.jpeg).c_str())) +
         MigRow("", bar1, "", "");
}

// Nothing unless one of the GPUs is in MIG mode.
std::string MigSection(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen) {
  const bool any = std::any_of(chosen.begin(), chosen.end(), [&](size_t gpu) { return MigIsOn(snapshot.gpus[gpu]); });
  if (!any) return "";
  std::string text = "\n" + WideRule('-') + WideRow(" MIG devices:") + DeviceRule('-');
  text += MigRow(" GPU  GI  CI  MIG", "              Shared Memory-Usage", "        Vol", "        Shared");
  text += MigRow("      ID  ID  Dev", "                Shared BAR1-Usage", " SM     Unc", " CE ENC  DEC  OFA  JPG");
  text += MigRow("", "", "        ECC", "") + DeviceRule('=');
  bool none = true;
  for (size_t index : chosen) {
    const std::vector<SmiMigDevice>& devices = snapshot.gpus[index].mig_devices;
    for (size_t i = 0; i < devices.size(); ++i) {
      const auto same = [&](size_t other) { return devices[other].gpu_instance == devices[i].gpu_instance; };
      text += MigDeviceRows(snapshot.gpus[index].index, devices[i], i == 0 || !same(i - 1)) +
              DeviceRule('-', i + 1 == devices.size() || !same(i + 1));
      none = false;
    }
  }
  return text + (none ? WideRow("  No MIG devices found") + WideRule('-') : "");
}

}  // namespace

std::string Table(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, const std::string& date) {
  std::string cuda =
      std::to_string(snapshot.cuda_version / 1000) + "." + std::to_string(snapshot.cuda_version % 1000 / 10);
  std::string text = date + "\n" + WideRule('-');
  text += WideRow(Printed(" NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-7s ",
                          snapshot.driver_version.c_str(), snapshot.driver_version.c_str(), cuda.c_str()));
  text += Rule('-');
  text += Row(" GPU  Name                 Persistence-M ", " Bus-Id          Disp.A ", " Volatile Uncorr. ECC ");
  text += Row(" Fan  Temp   Perf          Pwr:Usage/Cap ", "           Memory-Usage ", " GPU-Util  Compute M. ");
  text += Row("", "", "               MIG M. ");
  text += Rule('=');
  for (size_t gpu : chosen) text += GpuRows(snapshot.gpus[gpu]) + Rule('-');

  text += MigSection(snapshot, chosen);
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
      text += WideRow(Printed(" %4u %5s %4s %16u      C   %-34s %10s ", gpu.index, Count(process.gpu_instance).c_str(),
                              Count(process.compute_instance).c_str(), process.pid, name.c_str(),
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
    for (const SmiMigDevice& device : gpu.mig_devices) {
      text += Printed("  MIG %-11s Device %2u: (UUID: %s)\n", device.name.c_str(), device.index, device.uuid.c_str());
    }
  }
  return text;
}

}  // namespace mete::emulator::smi
