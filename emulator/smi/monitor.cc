#include "emulator/smi/monitor.h"

#include <cstdio>

namespace mete::emulator::smi {

namespace {

using Reading = std::optional<uint64_t>;

struct Column {
  char metric;
  int width;
  const char *name, *unit;
  Reading (*value)(const SmiGpu&);
};

template <typename T>
Reading Wide(const std::optional<T>& value) {
  return value ? Reading(static_cast<uint64_t>(*value)) : std::nullopt;
}
Reading ReadingMib(const std::optional<uint64_t>& bytes) { return bytes ? Reading(*bytes >> 20) : std::nullopt; }
Reading Sum(const std::optional<uint64_t>& a, const std::optional<uint64_t>& b) {
  return a || b ? Reading(a.value_or(0) + b.value_or(0)) : std::nullopt;
}

constexpr Column kColumns[] = {
    {'p', 6, "pwr", "W", [](const SmiGpu& g) { return g.power_mw ? Reading(*g.power_mw / 1000) : Reading(); }},
    {'p', 6, "gtemp", "C", [](const SmiGpu& g) { return Wide(g.temperature_c); }},
    {'p', 6, "mtemp", "C", [](const SmiGpu& g) { return Wide(g.memory_temperature_c); }},
    {'u', 6, "sm", "%", [](const SmiGpu& g) { return Wide(g.utilization_gpu); }},
    {'u', 6, "mem", "%", [](const SmiGpu& g) { return Wide(g.utilization_memory); }},
    {'u', 6, "enc", "%", [](const SmiGpu& g) { return Wide(g.encoder); }},
    {'u', 6, "dec", "%", [](const SmiGpu& g) { return Wide(g.decoder); }},
    {'u', 6, "jpg", "%", [](const SmiGpu& g) { return Wide(g.jpeg); }},
    {'u', 6, "ofa", "%", [](const SmiGpu& g) { return Wide(g.ofa); }},
    {'c', 6, "mclk", "MHz", [](const SmiGpu& g) { return Wide(g.memory_mhz); }},
    {'c', 6, "pclk", "MHz", [](const SmiGpu& g) { return Wide(g.sm_mhz); }},
    {'v', 6, "pviol", "%",
     [](const SmiGpu& g) { return g.clock_reasons ? Reading((*g.clock_reasons & 4) != 0 ? 100 : 0) : Reading(); }},
    {'v', 6, "tviol", "bool",
     [](const SmiGpu& g) { return g.clock_reasons ? Reading((*g.clock_reasons & 0x60) != 0) : Reading(); }},
    {'m', 6, "fb", "MB", [](const SmiGpu& g) { return ReadingMib(g.memory_used); }},
    {'m', 6, "bar1", "MB", [](const SmiGpu& g) { return ReadingMib(g.bar1_used); }},
    {'m', 6, "ccpm", "MB", [](const SmiGpu&) { return Reading(0); }},
    {'e', 6, "sbecc", "errs",
     [](const SmiGpu& g) { return Sum(g.ecc_aggregate.dram_corrected, g.ecc_aggregate.sram_corrected); }},
    {'e', 6, "dbecc", "errs",
     [](const SmiGpu& g) { return Sum(g.ecc_aggregate.dram_uncorrected, g.ecc_aggregate.sram_uncorrected); }},
    {'e', 6, "pci", "errs", [](const SmiGpu& g) { return Wide(g.replays); }},
    {'t', 6, "rxpci", "MB/s", [](const SmiGpu& g) { return g.rx_kbps ? Reading(*g.rx_kbps / 1000) : Reading(); }},
    {'t', 6, "txpci", "MB/s", [](const SmiGpu& g) { return g.tx_kbps ? Reading(*g.tx_kbps / 1000) : Reading(); }},
};

std::string Right(const std::string& text, int width) {
  char cell[64];
  snprintf(cell, sizeof(cell), "%*s ", width, text.c_str());
  return cell;
}
std::string Right(const Reading& value, int width) { return Right(value ? std::to_string(*value) : "-", width); }

std::string WhenName(std::string_view when, bool units) {
  std::string text;
  for (const char c : when) {
    if (c == 'D') text += units ? "YYYYMMDD " : "Date     ";
    if (c == 'T') text += units ? "HH:MM:SS " : "Time     ";
  }
  return text;
}

bool Has(std::string_view metrics, char metric) { return metrics.find(metric) != std::string_view::npos; }

}  // namespace

std::string DeviceHeader(std::string_view metrics, std::string_view when) {
  std::string names = "# " + WhenName(when, false) + "gpu ", units = "# " + WhenName(when, true) + "Idx ";
  // Columns come in the order in which their letters were asked for.
  for (const char metric : metrics) {
    for (const Column& column : kColumns) {
      if (column.metric != metric) continue;
      names += Right(std::string(column.name), column.width);
      units += Right(std::string(column.unit), column.width);
    }
  }
  return names + "\n" + units + "\n";
}

std::string DeviceLines(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view metrics,
                        const std::string& time) {
  std::string text;
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    text += (time.empty() ? "" : " " + time + " ") + Right(std::to_string(gpu.index), time.empty() ? 5 : 4);
    for (const char metric : metrics) {
      for (const Column& column : kColumns) {
        if (column.metric == metric) text += Right(column.value(gpu), column.width);
      }
    }
    text += "\n";
  }
  return text;
}

std::string ProcessHeader(std::string_view metrics, std::string_view when) {
  std::string names = "# " + WhenName(when, false) + "gpu         pid   type ";
  std::string units = "# " + WhenName(when, true) + "Idx           #    C/G ";
  if (Has(metrics, 'u')) {
    for (const char* name : {"sm", "mem", "enc", "dec", "jpg", "ofa"}) {
      names += Right(std::string(name), 6);
      units += Right(std::string("%"), 6);
    }
  }
  if (Has(metrics, 'm')) {
    for (const char* name : {"fb", "ccpm"}) {
      names += Right(std::string(name), 6);
      units += Right(std::string("MB"), 6);
    }
  }
  return names + "   command \n" + units + "   name \n";
}

std::string ProcessLines(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view metrics,
                         const std::string& time) {
  std::string text;
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    const std::string place = (time.empty() ? "" : " " + time + " ") + Right(std::to_string(gpu.index), 5);
    // A GPU that nobody uses has a line of its own.
    std::vector<const SmiProcess*> processes;
    for (const SmiProcess& process : gpu.processes) processes.push_back(&process);
    if (processes.empty()) processes.push_back(nullptr);
    for (const SmiProcess* process : processes) {
      text += place + Right(process == nullptr ? "-" : std::to_string(process->pid), 10) +
              Right(std::string(process == nullptr ? "-" : "C"), 6);
      if (Has(metrics, 'u')) {
        text += Right(process == nullptr ? Reading() : Wide(process->sm_percent), 6) +
                Right(process == nullptr ? Reading() : Wide(process->memory_percent), 6);
        for (int i = 0; i < 4; ++i) text += Right(Reading(), 6);
      }
      if (Has(metrics, 'm')) {
        text += Right(process == nullptr ? Reading() : ReadingMib(process->used_bytes), 6) +
                Right(process == nullptr ? Reading() : Reading(0), 6);
      }
      std::string name = process == nullptr ? "-" : process->name;
      name = name.substr(name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1);
      text += "   " + name.substr(0, 15) + "    \n";
    }
  }
  return text;
}

}  // namespace mete::emulator::smi
