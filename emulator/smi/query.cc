#include "emulator/smi/query.h"

#include <sys/time.h>
#include <time.h>

#include <cstdio>

namespace mete::emulator::smi {

namespace {

constexpr const char* kNothing = "[N/A]";

// A value and its unit, so that "nounits" can leave the second away.
struct Value {
  std::string text = kNothing;
  bool known = false;
  Value() = default;
  Value(std::string given) : text(std::move(given)), known(true) {}  // NOLINT(google-explicit-constructor)
};

template <typename T>
Value Number(const std::optional<T>& value) {
  return value ? Value(std::to_string(*value)) : Value();
}
Value MiB(const std::optional<uint64_t>& bytes) { return bytes ? Value(std::to_string(*bytes >> 20)) : Value(); }
Value Watts(const std::optional<uint32_t>& milliwatts) {
  if (!milliwatts) return {};
  char text[32];
  snprintf(text, sizeof(text), "%.2f", *milliwatts / 1000.0);
  return Value(text);
}
template <typename T>
Value OnOff(const std::optional<T>& mode) {
  return mode ? Value(*mode != 0 ? "Enabled" : "Disabled") : Value();
}
Value Text(const std::string& text) { return text.empty() ? Value() : Value(text); }
Value Hex(uint32_t value, int digits) {
  char text[32];
  snprintf(text, sizeof(text), "0x%0*X", digits, value);
  return Value(text);
}
Value ComputeMode(const std::optional<int>& mode) {
  constexpr const char* kNames[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
  return mode && *mode >= 0 && *mode < 4 ? Value(kNames[*mode]) : Value();
}
Value Now() {
  timeval now = {};
  gettimeofday(&now, nullptr);
  tm parts = {};
  localtime_r(&now.tv_sec, &parts);
  char date[64], text[96];
  strftime(date, sizeof(date), "%Y/%m/%d %H:%M:%S", &parts);
  snprintf(text, sizeof(text), "%s.%03d", date, static_cast<int>(now.tv_usec / 1000));
  return Value(text);
}

template <typename Row>
struct Field {
  const char* name;
  const char* other;  // a second name, or null
  const char* unit;   // or null
  Value (*value)(const SmiSnapshot&, const Row&);
  const char* meaning;
};

using GpuField = Field<SmiGpu>;
#define GPU(expression)                                     \
  [](const SmiSnapshot& node, const SmiGpu& gpu) -> Value { \
    (void)node;                                             \
    (void)gpu;                                              \
    return expression;                                      \
  }

constexpr GpuField kGpuFields[] = {
    {"timestamp", nullptr, nullptr, GPU(Now()), "when the values were read"},
    {"driver_version", nullptr, nullptr, GPU(Text(node.driver_version)), "of the installed driver"},
    {"count", nullptr, nullptr, GPU(Value(std::to_string(node.gpus.size()))), "GPUs of the node"},
    {"name", "gpu_name", nullptr, GPU(Text(gpu.name)), "product name"},
    {"serial", "gpu_serial", nullptr, GPU(Text(gpu.serial)), "board serial number"},
    {"uuid", "gpu_uuid", nullptr, GPU(Text(gpu.uuid)), "identifier that never changes"},
    {"pci.bus_id", "gpu_bus_id", nullptr, GPU(Text(gpu.bus_id)), "PCI bus id, domain:bus:device.function"},
    {"pci.domain", nullptr, nullptr, GPU(Hex(gpu.domain, 4)), "PCI domain"},
    {"pci.bus", nullptr, nullptr, GPU(Hex(gpu.bus, 2)), "PCI bus"},
    {"pci.device", nullptr, nullptr, GPU(Hex(gpu.device, 2)), "PCI device"},
    {"pci.device_id", nullptr, nullptr, GPU(Hex(gpu.pci_device_id, 8)), "PCI device and vendor"},
    {"pci.sub_device_id", nullptr, nullptr, GPU(Hex(gpu.pci_subsystem_id, 8)), "PCI subsystem"},
    {"index", nullptr, nullptr, GPU(Value(std::to_string(gpu.index))),
     "from 0, in bus order; may change with a reboot"},
    {"pcie.link.gen.current", "pcie.link.gen.gpucurrent", nullptr, GPU(Number(gpu.link_gen)), "PCIe generation in use"},
    {"pcie.link.gen.max", "pcie.link.gen.gpumax", nullptr, GPU(Number(gpu.link_gen_max)),
     "newest PCIe generation possible"},
    {"pcie.link.width.current", nullptr, nullptr, GPU(Number(gpu.link_width)), "PCIe lanes in use"},
    {"pcie.link.width.max", nullptr, nullptr, GPU(Number(gpu.link_width_max)), "most PCIe lanes possible"},
    {"display_mode", nullptr, nullptr, GPU(OnOff(gpu.display_mode)), "a display is connected"},
    {"display_active", nullptr, nullptr, GPU(OnOff(gpu.display_active)), "a display is initialised"},
    {"persistence_mode", nullptr, nullptr, GPU(OnOff(gpu.persistence)), "the driver keeps its state without clients"},
    {"accounting.mode", nullptr, nullptr, GPU(Value()), "process accounting"},
    {"vbios_version", nullptr, nullptr, GPU(Value()), "version of the video BIOS"},
    {"fan.speed", nullptr, "%", GPU(Value()), "of the board's fan"},
    {"pstate", nullptr, nullptr, GPU(gpu.pstate ? Value("P" + std::to_string(*gpu.pstate)) : Value()),
     "performance state"},
    {"memory.total", nullptr, "MiB", GPU(MiB(gpu.memory_total)), "device memory"},
    {"memory.reserved", nullptr, "MiB", GPU(MiB(gpu.memory_reserved)), "of it, kept by the driver"},
    {"memory.used", nullptr, "MiB", GPU(MiB(gpu.memory_used)), "held by processes"},
    {"memory.free", nullptr, "MiB", GPU(MiB(gpu.memory_free)), "left"},
    {"compute_mode", nullptr, nullptr, GPU(ComputeMode(gpu.compute_mode)), "who may open contexts"},
    {"compute_cap", nullptr, nullptr,
     GPU(Value(std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor))), "compute capability"},
    {"utilization.gpu", nullptr, "%", GPU(Number(gpu.utilization_gpu)), "time in which a kernel ran, last sample"},
    {"utilization.memory", nullptr, "%", GPU(Number(gpu.utilization_memory)),
     "time in which memory was read or written"},
    {"temperature.gpu", nullptr, nullptr, GPU(Number(gpu.temperature_c)), "degrees Celsius"},
    {"temperature.memory", nullptr, nullptr, GPU(Value()), "degrees Celsius, where the board has such a sensor"},
    {"power.draw", nullptr, "W", GPU(Watts(gpu.power_mw)), "of the board"},
    {"power.draw.average", nullptr, "W", GPU(Watts(gpu.power_mw)), "of the board, averaged"},
    {"power.draw.instant", nullptr, "W", GPU(Watts(gpu.power_mw)), "of the board, now"},
    {"power.limit", nullptr, "W", GPU(Watts(gpu.power_limit_mw)), "limit in software"},
    {"enforced.power.limit", nullptr, "W", GPU(Watts(gpu.enforced_limit_mw)), "limit in force"},
    {"power.default_limit", nullptr, "W", GPU(Watts(gpu.power_default_mw)), "limit after a reboot"},
    {"power.max_limit", nullptr, "W", GPU(Watts(gpu.power_default_mw)), "highest limit"},
    {"clocks.current.graphics", "clocks.gr", "MHz", GPU(Number(gpu.sm_mhz)), "graphics clock"},
    {"clocks.current.sm", "clocks.sm", "MHz", GPU(Number(gpu.sm_mhz)), "SM clock"},
    {"clocks.current.memory", "clocks.mem", "MHz", GPU(Number(gpu.memory_mhz)), "memory clock"},
    {"clocks.max.graphics", "clocks.max.gr", "MHz", GPU(Number(gpu.max_sm_mhz)), "highest graphics clock"},
    {"clocks.max.sm", nullptr, "MHz", GPU(Number(gpu.max_sm_mhz)), "highest SM clock"},
    {"clocks.max.memory", "clocks.max.mem", "MHz", GPU(Number(gpu.max_memory_mhz)), "highest memory clock"},
    {"mig.mode.current", nullptr, nullptr, GPU(OnOff(gpu.mig)), "multi-instance GPU"},
    {"mig.mode.pending", nullptr, nullptr, GPU(OnOff(gpu.mig_pending)), "multi-instance GPU after the next reset"},
    {"ecc.mode.current", nullptr, nullptr, GPU(OnOff(gpu.ecc)), "error correction"},
    {"ecc.mode.pending", nullptr, nullptr, GPU(OnOff(gpu.ecc_pending)), "error correction after the next reboot"},
    {"ecc.errors.uncorrected.volatile.total", nullptr, nullptr, GPU(Number(gpu.ecc_errors)),
     "since the driver was loaded"},
};
#undef GPU

struct App {
  const SmiGpu* gpu;
  const SmiProcess* process;
};
using AppField = Field<App>;
#define APP(expression)                             \
  [](const SmiSnapshot&, const App& app) -> Value { \
    (void)app;                                      \
    return expression;                              \
  }

constexpr AppField kAppFields[] = {
    {"timestamp", nullptr, nullptr, APP(Now()), "when the values were read"},
    {"gpu_name", nullptr, nullptr, APP(Text(app.gpu->name)), "product name of its GPU"},
    {"gpu_bus_id", nullptr, nullptr, APP(Text(app.gpu->bus_id)), "PCI bus id of its GPU"},
    {"gpu_serial", nullptr, nullptr, APP(Text(app.gpu->serial)), "board serial number of its GPU"},
    {"gpu_uuid", nullptr, nullptr, APP(Text(app.gpu->uuid)), "identifier of its GPU"},
    {"pid", nullptr, nullptr, APP(Value(std::to_string(app.process->pid))), "process id"},
    {"process_name", "name", nullptr, APP(Text(app.process->name)), "program"},
    {"used_gpu_memory", "used_memory", "MiB", APP(MiB(app.process->used_bytes)), "device memory it holds"},
};
#undef APP

std::vector<std::string> Split(std::string_view list) {
  std::vector<std::string> words;
  while (true) {
    size_t comma = list.find(',');
    std::string_view word = list.substr(0, comma);
    while (!word.empty() && (word.front() == ' ' || word.front() == '\t')) word.remove_prefix(1);
    while (!word.empty() && (word.back() == ' ' || word.back() == '\t')) word.remove_suffix(1);
    words.emplace_back(word);
    if (comma == std::string_view::npos) return words;
    list.remove_prefix(comma + 1);
  }
}

template <typename Row, size_t N>
bool Choose(const Field<Row> (&fields)[N], std::string_view list, std::vector<const Field<Row>*>* chosen,
            std::string* unknown) {
  for (const std::string& word : Split(list)) {
    const Field<Row>* found = nullptr;
    for (const Field<Row>& field : fields) {
      if (word == field.name || (field.other != nullptr && word == field.other)) found = &field;
    }
    if (found == nullptr) {
      *unknown = word;
      return false;
    }
    chosen->push_back(found);
  }
  return true;
}

template <typename Row>
void Print(const SmiSnapshot& snapshot, const std::vector<const Field<Row>*>& fields, const std::vector<Row>& rows,
           const CsvFormat& format, std::string* text) {
  auto line = [&](auto cell) {
    for (size_t i = 0; i < fields.size(); ++i) *text += (i == 0 ? "" : ", ") + cell(*fields[i]);
    *text += '\n';
  };
  if (format.header) {
    line([](const Field<Row>& field) {
      return std::string(field.name) + (field.unit != nullptr ? std::string(" [") + field.unit + "]" : "");
    });
  }
  for (const Row& row : rows) {
    line([&](const Field<Row>& field) {
      Value value = field.value(snapshot, row);
      bool unit = format.units && value.known && field.unit != nullptr;
      return value.text + (unit ? std::string(" ") + field.unit : "");
    });
  }
}

template <typename Row, size_t N>
std::string Help(const Field<Row> (&fields)[N]) {
  std::string text;
  for (const Field<Row>& field : fields) {
    text += "\"" + std::string(field.name) + "\"";
    if (field.other != nullptr) text += " or \"" + std::string(field.other) + "\"";
    text +=
        "\n    " + std::string(field.meaning) + (field.unit != nullptr ? std::string(", in ") + field.unit : "") + "\n";
  }
  return text;
}

}  // namespace

bool ParseFormat(std::string_view text, CsvFormat* format) {
  bool csv = false;
  for (const std::string& word : Split(text)) {
    if (word == "csv") {
      csv = true;
    } else if (word == "noheader") {
      format->header = false;
    } else if (word == "nounits") {
      format->units = false;
    } else {
      return false;
    }
  }
  return csv;
}

bool QueryGpus(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view list,
               const CsvFormat& format, std::string* text, std::string* unknown) {
  std::vector<const GpuField*> fields;
  if (!Choose(kGpuFields, list, &fields, unknown)) return false;
  std::vector<SmiGpu> rows;
  for (size_t gpu : chosen) rows.push_back(snapshot.gpus[gpu]);
  Print(snapshot, fields, rows, format, text);
  return true;
}

bool QueryApps(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view list,
               const CsvFormat& format, std::string* text, std::string* unknown) {
  std::vector<const AppField*> fields;
  if (!Choose(kAppFields, list, &fields, unknown)) return false;
  std::vector<App> rows;
  for (size_t gpu : chosen) {
    for (const SmiProcess& process : snapshot.gpus[gpu].processes) rows.push_back({&snapshot.gpus[gpu], &process});
  }
  Print(snapshot, fields, rows, format, text);
  return true;
}

std::string GpuFieldHelp() { return "Fields of --query-gpu:\n\n" + Help(kGpuFields); }
std::string AppFieldHelp() { return "Fields of --query-compute-apps:\n\n" + Help(kAppFields); }

}  // namespace mete::emulator::smi
