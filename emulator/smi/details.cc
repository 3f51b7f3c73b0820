#include "emulator/smi/details.h"

#include <algorithm>
#include <cstdio>

#include "emulator/smi/words.h"

namespace mete::emulator::smi {

namespace {

// A line of the report: a group opens at its depth and holds the deeper lines after it.
struct Line {
  int depth;
  std::string label, tag;  // in the text, in XML
  bool group;
  std::string value;
  bool only_xml = false;  // the text has no such line, and what a group holds stands one step further left
};

class Report {
 public:
  explicit Report(const std::vector<std::string>& sections) : sections_(sections) {}

  // The lines until the next Section belong to it; what belongs to "" is shown only when everything is.
  void Section(const char* name) {
    shown_ = sections_.empty() ? std::string(name) != "SUPPORTED_CLOCKS"
                               : std::find(sections_.begin(), sections_.end(), name) != sections_.end();
  }
  void Open(const char* label, const char* tag) { Open(label, tag, false); }
  void OpenInXml(const char* tag) { Open("", tag, true); }
  void Close() { --depth_; }
  void Add(const char* label, const char* tag, const std::string& value) {
    if (shown_) lines_.push_back({depth_, label, tag, false, value.empty() ? "N/A" : value});
  }
  void AddInXml(const char* tag, const std::string& value) {
    if (shown_) lines_.push_back({depth_, "", tag, false, value, true});
  }
  const std::vector<Line>& lines() const { return lines_; }

 private:
  void Open(const char* label, const char* tag, bool only_xml) {
    if (shown_) lines_.push_back({depth_, label, tag, true, "", only_xml});
    ++depth_;
  }

  const std::vector<std::string>& sections_;
  bool shown_ = true;
  int depth_ = 0;
  std::vector<Line> lines_;
};

void MigDevice(Report& r, const SmiMigDevice& device) {
  r.Open("MIG Device", "mig_device");
  r.Add("Index", "index", std::to_string(device.index));
  r.Add("GPU Instance ID", "gpu_instance_id", std::to_string(device.gpu_instance));
  r.Add("Compute Instance ID", "compute_instance_id", std::to_string(device.compute_instance));
  r.Open("Device Attributes", "device_attributes");
  r.Open("Shared", "shared");
  r.Add("Multiprocessor count", "multiprocessor_count", NumberText(device.sm_count));
  r.Add("Copy Engine count", "copy_engine_count", NumberText(device.copy_engines));
  r.Add("Encoder count", "encoder_count", NumberText(device.encoders));
  r.Add("Decoder count", "decoder_count", NumberText(device.decoders));
  r.Add("OFA count", "ofa_count", NumberText(device.ofa));
  r.Add("JPG count", "jpg_count", NumberText(device.jpeg));
  r.Close();
  r.Close();
  r.Open("ECC Errors", "ecc_error_count");
  r.Open("Volatile", "volatile_count");
  r.Add("SRAM Uncorrectable", "sram_uncorrectable", NumberText(device.sram_uncorrected));
  r.Close();
  r.Close();
  r.Open("Shared FB Memory Usage", "fb_memory_usage");
  r.Add("Total", "total", MibText(device.memory_total));
  r.Add("Reserved", "reserved", MibText(device.memory_reserved));
  r.Add("Used", "used", MibText(device.memory_used));
  r.Add("Free", "free", MibText(device.memory_free));
  r.Close();
  r.Open("Shared BAR1 Memory", "bar1_memory_usage");
  r.Add("Total", "total", MibText(device.bar1_total));
  r.Add("Used", "used", MibText(device.bar1_used));
  r.Add("Free", "free", MibText(device.bar1_free));
  r.Close();
  r.Close();
}

void Identity(Report& r, const SmiGpu& gpu) {
  r.Section("");
  r.Add("Product Name", "product_name", gpu.name);
  r.Add("Product Brand", "product_brand", gpu.brand);
  r.Add("Product Architecture", "product_architecture", gpu.architecture);
  r.Add("Display Mode", "display_mode", EnabledWord(gpu.display_mode));
  r.Add("Display Active", "display_active", EnabledWord(gpu.display_active));
  r.Add("Persistence Mode", "persistence_mode", EnabledWord(gpu.persistence));
  r.Add("Addressing Mode", "addressing_mode", gpu.addressing);
  r.Open("MIG Mode", "mig_mode");
  r.Add("Current", "current_mig", EnabledWord(gpu.mig));
  r.Add("Pending", "pending_mig", EnabledWord(gpu.mig_pending));
  r.Close();
  if (gpu.mig_devices.empty()) {
    r.AddInXml("mig_devices", "None");
  } else {
    r.OpenInXml("mig_devices");
    for (const SmiMigDevice& device : gpu.mig_devices) MigDevice(r, device);
    r.Close();
  }
  r.Section("ACCOUNTING");
  r.Add("Accounting Mode", "accounting_mode", EnabledWord(gpu.accounting));
  r.Add("Accounting Mode Buffer Size", "accounting_mode_buffer_size", NumberText(gpu.accounting_buffer));
  r.Section("");
  r.Open("Driver Model", "driver_model");
  r.Add("Current", "current_dm", "N/A");
  r.Add("Pending", "pending_dm", "N/A");
  r.Close();
  r.Add("Serial Number", "serial", gpu.serial);
  r.Add("GPU UUID", "uuid", gpu.uuid);
  r.Add("Minor Number", "minor_number", NumberText(gpu.minor));
  r.Add("VBIOS Version", "vbios_version", gpu.vbios);
  r.Add("MultiGPU Board", "multigpu_board", "No");
  r.Add("Board ID", "board_id", gpu.board_id ? HexText(*gpu.board_id, 1, false) : "N/A");
  r.Add("Board Part Number", "board_part_number", gpu.part_number);
  r.Add("GPU Part Number", "gpu_part_number",
        gpu.pci_device_id == 0 ? "N/A" : HexText(gpu.pci_device_id >> 16, 4).substr(2) + "-000-A1");
  r.Add("FRU Part Number", "gpu_fru_part_number", "N/A");
  r.Add("Module ID", "gpu_module_id", NumberText(gpu.module_id));
  r.Open("Inforom Version", "inforom_version");
  r.Add("Image Version", "img_version", gpu.inforom_image);
  r.Add("OEM Object", "oem_object", gpu.inforom_oem);
  r.Add("ECC Object", "ecc_object", gpu.inforom_ecc);
  r.Add("Power Management Object", "pwr_object", "N/A");
  r.Close();
  r.Open("GPU Operation Mode", "gpu_operation_mode");
  r.Add("Current", "current_gom", "N/A");
  r.Add("Pending", "pending_gom", "N/A");
  r.Close();
  r.Open("GPU Virtualization Mode", "gpu_virtualization_mode");
  r.Add("Virtualization Mode", "virtualization_mode", "None");
  r.Add("Host VGPU Mode", "host_vgpu_mode", "N/A");
  r.Close();
  r.Section("RESET_STATUS");
  constexpr const char* kActions[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"};
  r.Add("GPU Recovery Action", "gpu_recovery_action",
        gpu.recovery_action && *gpu.recovery_action < 5 ? kActions[*gpu.recovery_action] : "N/A");
  r.Section("GSP_FIRMWARE_VERSION");
  r.Add("GSP Firmware Version", "gsp_firmware_version", gpu.gsp_version);
}

void Bus(Report& r, const SmiGpu& gpu) {
  r.Section("");
  r.Open("PCI", "pci");
  r.Add("Bus", "pci_bus", HexText(gpu.bus, 2));
  r.Add("Device", "pci_device", HexText(gpu.device, 2));
  r.Add("Domain", "pci_domain", HexText(gpu.domain, 4));
  r.Add("Device Id", "pci_device_id", HexText(gpu.pci_device_id, 8));
  r.Add("Bus Id", "pci_bus_id", gpu.bus_id);
  r.Add("Sub System Id", "pci_sub_system_id", HexText(gpu.pci_subsystem_id, 8));
  r.Open("GPU Link Info", "pci_gpu_link_info");
  r.Open("PCIe Generation", "pcie_gen");
  r.Add("Max", "max_link_gen", NumberText(gpu.link_gen_max));
  r.Add("Current", "current_link_gen", NumberText(gpu.link_gen));
  r.Add("Device Current", "device_current_link_gen", NumberText(gpu.link_gen));
  r.Add("Device Max", "max_device_link_gen", NumberText(gpu.link_gen_max));
  r.Add("Host Max", "max_host_link_gen", "N/A");
  r.Close();
  r.Open("Link Width", "link_widths");
  r.Add("Max", "max_link_width", UnitText(gpu.link_width_max, "x"));
  r.Add("Current", "current_link_width", UnitText(gpu.link_width, "x"));
  r.Close();
  r.Close();
  r.Open("Bridge Chip", "pci_bridge_chip");
  r.Add("Type", "bridge_chip_type", "N/A");
  r.Add("Firmware", "bridge_chip_fw", "N/A");
  r.Close();
  r.Add("Replays Since Reset", "replay_counter", NumberText(gpu.replays));
  r.Add("Replay Number Rollovers", "replay_rollover_counter", NumberText(gpu.replays));
  r.Add("Tx Throughput", "tx_util", UnitText(gpu.tx_kbps, " KB/s"));
  r.Add("Rx Throughput", "rx_util", UnitText(gpu.rx_kbps, " KB/s"));
  r.Close();
  r.Add("Fan Speed", "fan_speed", UnitText(gpu.fan_percent, " %"));
}

void Performance(Report& r, const SmiGpu& gpu) {
  r.Section("PERFORMANCE");
  r.Add("Performance State", "performance_state", gpu.pstate ? "P" + std::to_string(*gpu.pstate) : "N/A");
  r.Open("Clocks Event Reasons", "clocks_event_reasons");
  const auto reason = [&](const char* label, const char* tag, uint64_t bit) {
    r.Add(label, tag, !gpu.clock_reasons ? "N/A" : (*gpu.clock_reasons & bit) != 0 ? "Active" : "Not Active");
  };
  reason("Idle", "clocks_event_reason_gpu_idle", 0x1);
  reason("Applications Clocks Setting", "clocks_event_reason_applications_clocks_setting", 0x2);
  reason("SW Power Cap", "clocks_event_reason_sw_power_cap", 0x4);
  reason("HW Slowdown", "clocks_event_reason_hw_slowdown", 0x8 | 0x40 | 0x80);
  reason("HW Thermal Slowdown", "clocks_event_reason_hw_thermal_slowdown", 0x40);
  reason("HW Power Brake Slowdown", "clocks_event_reason_hw_power_brake_slowdown", 0x80);
  reason("Sync Boost", "clocks_event_reason_sync_boost", 0x10);
  reason("SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown", 0x20);
  reason("Display Clock Setting", "clocks_event_reason_display_clocks_setting", 0x100);
  r.Close();
}

void Memory(Report& r, const SmiGpu& gpu) {
  r.Section("MEMORY");
  const auto told = [&](const std::optional<uint64_t>& bytes) {
    return gpu.memory_denied && !bytes ? std::string("Insufficient Permissions") : MibText(bytes);
  };
  r.Open("FB Memory Usage", "fb_memory_usage");
  r.Add("Total", "total", told(gpu.memory_total));
  r.Add("Reserved", "reserved", told(gpu.memory_reserved));
  r.Add("Used", "used", told(gpu.memory_used));
  r.Add("Free", "free", told(gpu.memory_free));
  r.Close();
  r.Open("BAR1 Memory Usage", "bar1_memory_usage");
  r.Add("Total", "total", MibText(gpu.bar1_total));
  r.Add("Used", "used", MibText(gpu.bar1_used));
  r.Add("Free", "free", MibText(gpu.bar1_free));
  r.Close();
  r.Section("COMPUTE");
  r.Add("Compute Mode", "compute_mode", ComputeModeWord(gpu.compute_mode));
}

void Utilization(Report& r, const SmiGpu& gpu) {
  r.Section("UTILIZATION");
  r.Open("Utilization", "utilization");
  r.Add("GPU", "gpu_util", UnitText(gpu.utilization_gpu, " %"));
  r.Add("Memory", "memory_util", UnitText(gpu.utilization_memory, " %"));
  r.Add("Encoder", "encoder_util", UnitText(gpu.encoder, " %"));
  r.Add("Decoder", "decoder_util", UnitText(gpu.decoder, " %"));
  r.Add("JPEG", "jpeg_util", UnitText(gpu.jpeg, " %"));
  r.Add("OFA", "ofa_util", UnitText(gpu.ofa, " %"));
  r.Close();
  const auto sessions = [&](const char* section, const char* label, const char* tag) {
    r.Section(section);
    r.Open(label, tag);
    r.Add("Active Sessions", "session_count", "0");
    r.Add("Average FPS", "average_fps", "0");
    r.Add("Average Latency", "average_latency", "0");
    r.Close();
  };
  sessions("ENCODER_STATS", "Encoder Stats", "encoder_stats");
  sessions("FBC_STATS", "FBC Stats", "fbc_stats");
}

void Ecc(Report& r, const SmiGpu& gpu) {
  r.Section("ECC");
  r.Open("ECC Mode", "ecc_mode");
  r.Add("Current", "current_ecc", EnabledWord(gpu.ecc));
  r.Add("Pending", "pending_ecc", EnabledWord(gpu.ecc_pending));
  r.Close();
  r.Open("ECC Errors", "ecc_errors");
  const auto counters = [&](const char* label, const char* tag, const SmiEcc& ecc) {
    r.Open(label, tag);
    r.Add("SRAM Correctable", "sram_correctable", NumberText(ecc.sram_corrected));
    r.Add("SRAM Uncorrectable", "sram_uncorrectable", NumberText(ecc.sram_uncorrected));
    r.Add("DRAM Correctable", "dram_correctable", NumberText(ecc.dram_corrected));
    r.Add("DRAM Uncorrectable", "dram_uncorrectable", NumberText(ecc.dram_uncorrected));
    r.Close();
  };
  counters("Volatile", "volatile", gpu.ecc_volatile);
  counters("Aggregate", "aggregate", gpu.ecc_aggregate);
  r.Close();
  r.Section("PAGE_RETIREMENT");
  r.Open("Retired Pages", "retired_pages");
  r.Add("Single Bit ECC", "multiple_single_bit_retirement", NumberText(gpu.retired_single));
  r.Add("Double Bit ECC", "double_bit_retirement", NumberText(gpu.retired_double));
  r.Add("Pending Page Blacklist", "pending_blacklist", YesWord(gpu.retired_pending));
  r.Close();
  r.Section("ROW_REMAPPER");
  r.Open("Remapped Rows", "remapped_rows");
  r.Add("Correctable Error", "remapped_row_corr", NumberText(gpu.remapped_corrected));
  r.Add("Uncorrectable Error", "remapped_row_unc", NumberText(gpu.remapped_uncorrected));
  r.Add("Pending", "remapped_row_pending", YesWord(gpu.remap_pending));
  r.Add("Remapping Failure Occurred", "remapped_row_failure", YesWord(gpu.remap_failed));
  r.Open("Bank Remap Availability Histogram", "row_remapper_histogram");
  r.Add("Max", "row_remapper_histogram_max", UnitText(gpu.banks_max, " bank(s)"));
  r.Add("High", "row_remapper_histogram_high", UnitText(gpu.banks_high, " bank(s)"));
  r.Add("Partial", "row_remapper_histogram_partial", UnitText(gpu.banks_partial, " bank(s)"));
  r.Add("Low", "row_remapper_histogram_low", UnitText(gpu.banks_low, " bank(s)"));
  r.Add("None", "row_remapper_histogram_none", UnitText(gpu.banks_none, " bank(s)"));
  r.Close();
  r.Close();
}

void HeatAndPower(Report& r, const SmiGpu& gpu) {
  r.Section("TEMPERATURE");
  r.Open("Temperature", "temperature");
  r.Add("GPU Current Temp", "gpu_temp", UnitText(gpu.temperature_c, " C"));
  r.Add("GPU T.Limit Temp", "gpu_temp_tlimit", UnitText(gpu.temperature_limit_c, " C"));
  r.Add("GPU Shutdown Temp", "gpu_temp_max_threshold", UnitText(gpu.shutdown_c, " C"));
  r.Add("GPU Slowdown Temp", "gpu_temp_slow_threshold", UnitText(gpu.slowdown_c, " C"));
  r.Add("GPU Max Operating Temp", "gpu_temp_max_gpu_threshold", UnitText(gpu.gpu_max_c, " C"));
  r.Add("GPU Target Temperature", "gpu_target_temperature", "N/A");
  r.Add("Memory Current Temp", "memory_temp", UnitText(gpu.memory_temperature_c, " C"));
  r.Add("Memory Max Operating Temp", "gpu_temp_max_mem_threshold", UnitText(gpu.memory_max_c, " C"));
  r.Close();
  r.Section("POWER");
  r.Open("GPU Power Readings", "gpu_power_readings");
  r.Add("Average Power Draw", "average_power_draw", WattText(gpu.power_average_mw));
  r.Add("Instantaneous Power Draw", "instant_power_draw", WattText(gpu.power_mw));
  r.Add("Current Power Limit", "current_power_limit", WattText(gpu.enforced_limit_mw));
  r.Add("Requested Power Limit", "requested_power_limit", WattText(gpu.power_limit_mw));
  r.Add("Default Power Limit", "default_power_limit", WattText(gpu.power_default_mw));
  r.Add("Min Power Limit", "min_power_limit", WattText(gpu.power_min_mw));
  r.Add("Max Power Limit", "max_power_limit", WattText(gpu.power_max_mw));
  r.Close();
}

void ClockLines(Report& r, const SmiGpu& gpu) {
  r.Section("CLOCK");
  r.Open("Clocks", "clocks");
  r.Add("Graphics", "graphics_clock", UnitText(gpu.sm_mhz, " MHz"));
  r.Add("SM", "sm_clock", UnitText(gpu.sm_mhz, " MHz"));
  r.Add("Memory", "mem_clock", UnitText(gpu.memory_mhz, " MHz"));
  r.Add("Video", "video_clock", "N/A");
  r.Close();
  r.Open("Applications Clocks", "applications_clocks");
  r.Add("Graphics", "graphics_clock", UnitText(gpu.application_sm_mhz, " MHz"));
  r.Add("Memory", "mem_clock", UnitText(gpu.application_memory_mhz, " MHz"));
  r.Close();
  r.Open("Default Applications Clocks", "default_applications_clocks");
  r.Add("Graphics", "graphics_clock", UnitText(gpu.default_sm_mhz, " MHz"));
  r.Add("Memory", "mem_clock", UnitText(gpu.default_memory_mhz, " MHz"));
  r.Close();
  r.Open("Max Clocks", "max_clocks");
  r.Add("Graphics", "graphics_clock", UnitText(gpu.max_sm_mhz, " MHz"));
  r.Add("SM", "sm_clock", UnitText(gpu.max_sm_mhz, " MHz"));
  r.Add("Memory", "mem_clock", UnitText(gpu.max_memory_mhz, " MHz"));
  r.Add("Video", "video_clock", "N/A");
  r.Close();
  r.Open("Max Customer Boost Clocks", "max_customer_boost_clocks");
  r.Add("Graphics", "graphics_clock", UnitText(gpu.max_sm_mhz, " MHz"));
  r.Close();
  r.Open("Clock Policy", "clock_policy");
  r.Add("Auto Boost", "auto_boost", "N/A");
  r.Add("Auto Boost Default", "auto_boost_default", "N/A");
  r.Close();
  r.Section("SUPPORTED_CLOCKS");
  r.Open("Supported Clocks", "supported_clocks");
  for (size_t i = 0; i < gpu.memory_clocks_mhz.size(); ++i) {
    r.OpenInXml("supported_mem_clock");
    r.Add("Memory", "value", std::to_string(gpu.memory_clocks_mhz[i]) + " MHz");
    for (uint32_t mhz : gpu.sm_clocks_mhz) {
      r.Add("Graphics", "supported_graphics_clock", std::to_string(mhz) + " MHz");
    }
    r.Close();
  }
  r.Close();
  r.Section("");
  r.Open("Fabric", "fabric");
  r.Add("State", "state", !gpu.fabric_state ? "N/A" : *gpu.fabric_state == 3 ? "Completed" : "N/A");
  r.Add("Status", "status", !gpu.fabric_state ? "N/A" : *gpu.fabric_state == 3 ? "Success" : "N/A");
  r.Close();
}

void Processes(Report& r, const SmiGpu& gpu) {
  r.Section("PIDS");
  if (gpu.processes.empty()) {
    r.Add("Processes", "processes", "None");
  } else {
    r.Open("Processes", "processes");
    for (const SmiProcess& process : gpu.processes) {
      r.OpenInXml("process_info");
      r.Add("GPU instance ID", "gpu_instance_id", NumberText(process.gpu_instance));
      r.Add("Compute instance ID", "compute_instance_id", NumberText(process.compute_instance));
      r.Add("Process ID", "pid", std::to_string(process.pid));
      r.Add("Type", "type", "C");
      r.Add("Name", "process_name", process.name);
      r.Add("Used GPU Memory", "used_memory", MibText(process.used_bytes));
      r.Close();
    }
    r.Close();
  }
  r.Section("ACCOUNTING");
  if (gpu.accounted.empty()) {
    r.Add("Accounted Processes", "accounted_processes", "None");
    return;
  }
  r.Open("Accounted Processes", "accounted_processes");
  for (const SmiAccounted& process : gpu.accounted) {
    r.OpenInXml("accounted_process_info");
    r.Add("Process ID", "pid", std::to_string(process.pid));
    r.Add("GPU Utilization", "gpu_util", std::to_string(process.gpu_percent) + " %");
    r.Add("Memory Utilization", "memory_util", std::to_string(process.memory_percent) + " %");
    r.Add("Max memory usage", "max_memory_usage", MibText(process.most_memory_bytes));
    r.Add("Time", "time", std::to_string(process.milliseconds) + " ms");
    r.Add("Is Running", "is_running", process.running ? "1" : "0");
    r.Close();
  }
  r.Close();
}

std::vector<Line> LinesOf(const SmiGpu& gpu, const std::vector<std::string>& sections) {
  Report report(sections);
  Identity(report, gpu);
  Bus(report, gpu);
  Performance(report, gpu);
  Memory(report, gpu);
  Utilization(report, gpu);
  Ecc(report, gpu);
  HeatAndPower(report, gpu);
  ClockLines(report, gpu);
  Processes(report, gpu);
  return report.lines();
}

std::string TextLine(int depth, const std::string& label, const std::string* value) {
  constexpr size_t kValueColumn = 42;
  std::string line = std::string(static_cast<size_t>(depth) * 4, ' ') + label;
  if (value != nullptr) {
    if (line.size() < kValueColumn) line.resize(kValueColumn, ' ');
    line += ": " + *value;
  }
  return line + "\n";
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

std::string CudaVersion(const SmiSnapshot& snapshot) {
  return std::to_string(snapshot.cuda_version / 1000) + "." + std::to_string(snapshot.cuda_version % 1000 / 10);
}

}  // namespace

const std::vector<std::string>& DetailSections() {
  static const std::vector<std::string> names = {"MEMORY",
                                                 "UTILIZATION",
                                                 "ECC",
                                                 "TEMPERATURE",
                                                 "POWER",
                                                 "CLOCK",
                                                 "COMPUTE",
                                                 "PIDS",
                                                 "PERFORMANCE",
                                                 "SUPPORTED_CLOCKS",
                                                 "PAGE_RETIREMENT",
                                                 "ACCOUNTING",
                                                 "ENCODER_STATS",
                                                 "FBC_STATS",
                                                 "ROW_REMAPPER",
                                                 "RESET_STATUS",
                                                 "GSP_FIRMWARE_VERSION"};
  return names;
}

std::string Details(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen,
                    const std::vector<std::string>& sections, const std::string& date) {
  const std::string count = std::to_string(snapshot.gpus.size()), cuda = CudaVersion(snapshot);
  std::string text = "\n==============NVSMI LOG==============\n\n";
  text += TextLine(0, "Timestamp", &date) + TextLine(0, "Driver Version", &snapshot.driver_version) +
          TextLine(0, "CUDA Version", &cuda) + "\n" + TextLine(0, "Attached GPUs", &count);
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    text += "GPU " + gpu.bus_id + "\n";
    if (gpu.lost) text += "    GPU is lost. Reboot the system to recover this GPU\n";
    const std::vector<Line> lines = gpu.lost ? std::vector<Line>() : LinesOf(gpu, sections);
    int hidden = -1;  // depth of the heading that the text leaves out
    for (const Line& line : lines) {
      if (line.depth <= hidden) hidden = -1;
      if (line.only_xml) {
        if (line.group) hidden = line.depth;
        continue;
      }
      const int depth = line.depth + (hidden < 0 ? 1 : 0);
      text += TextLine(depth, line.label, line.group ? nullptr : &line.value);
    }
    text += "\n";
  }
  return text;
}

std::string DetailsXml(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen,
                       const std::vector<std::string>& sections, const std::string& date) {
  std::string text =
      "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n";
  const auto element = [&](int depth, const std::string& tag, const std::string& value) {
    text += std::string(static_cast<size_t>(depth), '\t') + "<" + tag + ">" + Escaped(value) + "</" + tag + ">\n";
  };
  element(1, "timestamp", date);
  element(1, "driver_version", snapshot.driver_version);
  element(1, "cuda_version", CudaVersion(snapshot));
  element(1, "attached_gpus", std::to_string(snapshot.gpus.size()));
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    text += "\t<gpu id=\"" + Escaped(gpu.bus_id) + "\">\n";
    std::vector<Line> open;
    const auto close_to = [&](int depth) {
      for (; !open.empty() && open.back().depth >= depth; open.pop_back()) {
        text += std::string(static_cast<size_t>(open.back().depth) + 2, '\t') + "</" + open.back().tag + ">\n";
      }
    };
    for (const Line& line : gpu.lost ? std::vector<Line>() : LinesOf(gpu, sections)) {
      close_to(line.depth);
      if (line.group) {
        text += std::string(static_cast<size_t>(line.depth) + 2, '\t') + "<" + line.tag + ">\n";
        open.push_back(line);
      } else if (line.tag == "mig_devices") {
        text += "\t\t<mig_devices>\n\t\t\t" + line.value + "\n\t\t</mig_devices>\n";
      } else if (line.value == "None" && (line.tag == "processes" || line.tag == "accounted_processes")) {
        text += "\t\t<" + line.tag + ">\n\t\t</" + line.tag + ">\n";
      } else {
        element(line.depth + 2, line.tag, line.value);
      }
    }
    close_to(0);
    text += "\t</gpu>\n\n";
  }
  return text + "</nvidia_smi_log>\n";
}

}  // namespace mete::emulator::smi
