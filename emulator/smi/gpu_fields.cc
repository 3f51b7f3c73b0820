// The fields of --query-gpu.
#include <algorithm>

#include "emulator/smi/fields.h"

namespace mete::emulator::smi {

namespace {

#define GPU(expression) SMI_VALUE(SmiGpu, gpu, expression)

std::string HexText64(uint64_t value) {
  char text[32];
  snprintf(text, sizeof(text), "0x%016llX", static_cast<unsigned long long>(value));
  return text;
}

Value Total(const std::optional<uint64_t>& dram, const std::optional<uint64_t>& sram) {
  return dram || sram ? Value(std::to_string(dram.value_or(0) + sram.value_or(0))) : Value();
}

Value Reason(const SmiGpu& gpu, uint64_t bits) {
  if (!gpu.clock_reasons) return {};
  return Value((*gpu.clock_reasons & bits) != 0 ? "Active" : "Not Active");
}

Value RecoveryAction(const SmiGpu& gpu) {
  constexpr const char* kWords[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"};
  if (!gpu.recovery_action || *gpu.recovery_action > 4) return {};
  return Value(kWords[*gpu.recovery_action]);
}

Value Memory(const SmiGpu& gpu, const std::optional<uint64_t>& bytes) {
  Value value = Mib(bytes);
  if (!value.known && gpu.memory_denied) value.text = "[Insufficient Permissions]";
  return value;
}

}  // namespace

const std::vector<GpuField>& GpuFields() {
  static const std::vector<GpuField> fields = {
      {"timestamp", nullptr, nullptr, GPU(Now()), "when the values were read"},
      {"driver_version", nullptr, nullptr, GPU(Text(node.driver_version)), "of the installed driver"},
      {"count", nullptr, nullptr, GPU(Value(std::to_string(node.gpus.size()))), "GPUs of the node"},
      {"name", "gpu_name", nullptr, GPU(Text(gpu.name)), "product name"},
      {"serial", "gpu_serial", nullptr, GPU(Text(gpu.serial)), "board serial number"},
      {"uuid", "gpu_uuid", nullptr, GPU(Text(gpu.uuid)), "identifier that never changes"},
      {"pci.bus_id", "gpu_bus_id", nullptr, GPU(Text(gpu.bus_id)), "PCI bus id, domain:bus:device.function"},
      {"pci.domain", nullptr, nullptr, GPU(HexText(gpu.domain, 4)), "PCI domain"},
      {"pci.bus", nullptr, nullptr, GPU(HexText(gpu.bus, 2)), "PCI bus"},
      {"pci.device", nullptr, nullptr, GPU(HexText(gpu.device, 2)), "PCI device"},
      {"pci.device_id", nullptr, nullptr, GPU(HexText(gpu.pci_device_id, 8)), "PCI device and vendor"},
      {"pci.sub_device_id", nullptr, nullptr, GPU(HexText(gpu.pci_subsystem_id, 8)), "PCI subsystem"},
      {"index", nullptr, nullptr, GPU(Value(std::to_string(gpu.index))),
       "from 0, in bus order; may change with a reboot"},
      {"pcie.link.gen.current", "pcie.link.gen.gpucurrent", nullptr, GPU(Number(gpu.link_gen)),
       "PCIe generation in use"},
      {"pcie.link.gen.max", "pcie.link.gen.gpumax", nullptr, GPU(Number(gpu.link_gen_max)),
       "newest PCIe generation possible"},
      {"pcie.link.width.current", nullptr, nullptr, GPU(Number(gpu.link_width)), "PCIe lanes in use"},
      {"pcie.link.width.max", nullptr, nullptr, GPU(Number(gpu.link_width_max)), "most PCIe lanes possible"},
      {"display_mode", nullptr, nullptr, GPU(OnOff(gpu.display_mode)), "a display is connected"},
      {"display_active", nullptr, nullptr, GPU(OnOff(gpu.display_active)), "a display is initialised"},
      {"persistence_mode", nullptr, nullptr, GPU(OnOff(gpu.persistence)), "the driver keeps its state without clients"},
      {"accounting.mode", nullptr, nullptr, GPU(OnOff(gpu.accounting)), "process accounting"},
      {"vbios_version", nullptr, nullptr, GPU(Text(gpu.vbios)), "version of the video BIOS"},
      {"fan.speed", nullptr, "%", GPU(Number(gpu.fan_percent)), "of the board's fan"},
      {"pstate", nullptr, nullptr, GPU(gpu.pstate ? Value("P" + std::to_string(*gpu.pstate)) : Value()),
       "performance state"},
      {"memory.total", nullptr, "MiB", GPU(Memory(gpu, gpu.memory_total)), "device memory"},
      {"memory.reserved", nullptr, "MiB", GPU(Memory(gpu, gpu.memory_reserved)), "of it, kept by the driver"},
      {"memory.used", nullptr, "MiB", GPU(Memory(gpu, gpu.memory_used)), "held by processes"},
      {"memory.free", nullptr, "MiB", GPU(Memory(gpu, gpu.memory_free)), "left"},
      {"compute_mode", nullptr, nullptr, GPU(gpu.compute_mode ? Value(ComputeModeWord(gpu.compute_mode)) : Value()),
       "who may open contexts"},
      {"compute_cap", nullptr, nullptr,
       GPU(Value(std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor))), "compute capability"},
      {"utilization.gpu", nullptr, "%", GPU(Number(gpu.utilization_gpu)), "time in which a kernel ran, last sample"},
      {"utilization.memory", nullptr, "%", GPU(Number(gpu.utilization_memory)),
       "time in which memory was read or written"},
      {"temperature.gpu", nullptr, nullptr, GPU(Number(gpu.temperature_c)), "degrees Celsius"},
      {"temperature.memory", nullptr, nullptr, GPU(Number(gpu.memory_temperature_c)),
       "degrees Celsius, where the board has such a sensor"},
      {"power.draw", nullptr, "W", GPU(Watts(gpu.power_mw)), "of the board"},
      {"power.draw.average", nullptr, "W", GPU(Watts(gpu.power_average_mw)), "of the board, averaged"},
      {"power.draw.instant", nullptr, "W", GPU(Watts(gpu.power_mw)), "of the board, now"},
      {"power.limit", nullptr, "W", GPU(Watts(gpu.power_limit_mw)), "limit in software"},
      {"enforced.power.limit", nullptr, "W", GPU(Watts(gpu.enforced_limit_mw)), "limit in force"},
      {"power.default_limit", nullptr, "W", GPU(Watts(gpu.power_default_mw)), "limit after a reboot"},
      {"power.min_limit", nullptr, "W", GPU(Watts(gpu.power_min_mw)), "lowest limit"},
      {"power.max_limit", nullptr, "W", GPU(Watts(gpu.power_max_mw)), "highest limit"},
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
      {"ecc.errors.corrected.volatile.dram", "ecc.errors.corrected.volatile.device_memory", nullptr,
       GPU(Number(gpu.ecc_volatile.dram_corrected)), "errors of device memory"},
      {"ecc.errors.corrected.volatile.sram", nullptr, nullptr, GPU(Number(gpu.ecc_volatile.sram_corrected)),
       "errors of on-chip memories"},
      {"ecc.errors.corrected.volatile.total", nullptr, nullptr,
       GPU(Total(gpu.ecc_volatile.dram_corrected, gpu.ecc_volatile.sram_corrected)), "errors of all memories"},
      {"ecc.errors.corrected.aggregate.dram", "ecc.errors.corrected.aggregate.device_memory", nullptr,
       GPU(Number(gpu.ecc_aggregate.dram_corrected)), "errors of device memory"},
      {"ecc.errors.corrected.aggregate.sram", nullptr, nullptr, GPU(Number(gpu.ecc_aggregate.sram_corrected)),
       "errors of on-chip memories"},
      {"ecc.errors.corrected.aggregate.total", nullptr, nullptr,
       GPU(Total(gpu.ecc_aggregate.dram_corrected, gpu.ecc_aggregate.sram_corrected)), "errors of all memories"},
      {"ecc.errors.uncorrected.volatile.dram", "ecc.errors.uncorrected.volatile.device_memory", nullptr,
       GPU(Number(gpu.ecc_volatile.dram_uncorrected)), "errors of device memory"},
      {"ecc.errors.uncorrected.volatile.sram", nullptr, nullptr, GPU(Number(gpu.ecc_volatile.sram_uncorrected)),
       "errors of on-chip memories"},
      {"ecc.errors.uncorrected.volatile.total", nullptr, nullptr,
       GPU(Total(gpu.ecc_volatile.dram_uncorrected, gpu.ecc_volatile.sram_uncorrected)), "errors of all memories"},
      {"ecc.errors.uncorrected.aggregate.dram", "ecc.errors.uncorrected.aggregate.device_memory", nullptr,
       GPU(Number(gpu.ecc_aggregate.dram_uncorrected)), "errors of device memory"},
      {"ecc.errors.uncorrected.aggregate.sram", nullptr, nullptr, GPU(Number(gpu.ecc_aggregate.sram_uncorrected)),
       "errors of on-chip memories"},
      {"ecc.errors.uncorrected.aggregate.total", nullptr, nullptr,
       GPU(Total(gpu.ecc_aggregate.dram_uncorrected, gpu.ecc_aggregate.sram_uncorrected)), "errors of all memories"},
      {"retired_pages.single_bit_ecc.count", "retired_pages.sbe", nullptr, GPU(Number(gpu.retired_single)),
       "pages out of use for corrected errors"},
      {"retired_pages.double_bit.count", "retired_pages.dbe", nullptr, GPU(Number(gpu.retired_double)),
       "pages out of use for an uncorrected error"},
      {"retired_pages.pending", nullptr, nullptr, GPU(YesNo(gpu.retired_pending)),
       "whether the next reset takes pages out of use"},
      {"remapped_rows.correctable", nullptr, nullptr, GPU(Number(gpu.remapped_corrected)),
       "rows replaced for corrected errors"},
      {"remapped_rows.uncorrectable", nullptr, nullptr, GPU(Number(gpu.remapped_uncorrected)),
       "rows replaced for an uncorrected error"},
      {"remapped_rows.pending", nullptr, nullptr, GPU(YesNo(gpu.remap_pending)),
       "whether the next reset replaces rows"},
      {"remapped_rows.failure", nullptr, nullptr, GPU(YesNo(gpu.remap_failed)), "whether replacing one failed"},
      {"accounting.buffer_size", nullptr, nullptr, GPU(Number(gpu.accounting_buffer)),
       "processes that the accounting keeps"},
      {"driver_model.current", nullptr, nullptr, GPU(Value()), "Windows only"},
      {"driver_model.pending", nullptr, nullptr, GPU(Value()), "Windows only"},
      {"inforom.img", "inforom.image", nullptr, GPU(Text(gpu.inforom_image)), "image of the information ROM"},
      {"inforom.oem", nullptr, nullptr, GPU(Text(gpu.inforom_oem)), "OEM object of it"},
      {"inforom.ecc", nullptr, nullptr, GPU(Text(gpu.inforom_ecc)), "ECC object of it"},
      {"inforom.pwr", "inforom.power", nullptr, GPU(Value()), "power object of it"},
      {"gom.current", "gpu_operation_mode.current", nullptr, GPU(Value()), "GPU operation mode"},
      {"gom.pending", "gpu_operation_mode.pending", nullptr, GPU(Value()), "GPU operation mode after the next reboot"},
      {"gsp.mode.current", nullptr, nullptr, GPU(gpu.gsp_version.empty() ? Value() : Value(std::string("Enabled"))),
       "system processor of the GPU"},
      {"board_part_number", nullptr, nullptr, GPU(Text(gpu.part_number)), "part number of the board"},
      {"module_id", nullptr, nullptr, GPU(Number(gpu.module_id)), "place on the baseboard"},
      {"addressing_mode", nullptr, nullptr, GPU(Text(gpu.addressing)), "who translates addresses"},
      {"pci.sub_vendor_id", nullptr, nullptr, GPU(HexText(gpu.pci_subsystem_id & 0xffff, 4)),
       "vendor of the PCI subsystem"},
      {"pcie.link.gen.hostmax", nullptr, nullptr, GPU(Value()), "newest PCIe generation of the host"},
      {"utilization.encoder", nullptr, "%", GPU(Number(gpu.encoder)), "video encoder"},
      {"utilization.decoder", nullptr, "%", GPU(Number(gpu.decoder)), "video decoder"},
      {"utilization.jpeg", nullptr, "%", GPU(Number(gpu.jpeg)), "JPEG engine"},
      {"utilization.ofa", nullptr, "%", GPU(Number(gpu.ofa)), "optical-flow engine"},
      {"encoder.stats.sessionCount", nullptr, nullptr, GPU(Value(std::string("0"))), "video encoder sessions"},
      {"encoder.stats.averageFps", nullptr, nullptr, GPU(Value(std::string("0"))), "frames per second of them"},
      {"encoder.stats.averageLatency", nullptr, nullptr, GPU(Value(std::string("0"))), "microseconds a frame of them"},
      {"temperature.gpu.tlimit", nullptr, nullptr, GPU(Number(gpu.temperature_limit_c)), "degrees to the slowdown"},
      {"power.management", nullptr, nullptr, GPU(gpu.power_limit_mw ? Value(std::string("Enabled")) : Value()),
       "whether the power limit holds"},
      {"clocks.current.video", "clocks.video", "MHz", GPU(Value()), "video clock"},
      {"clocks.applications.graphics", "clocks.applications.gr", "MHz", GPU(Number(gpu.application_sm_mhz)),
       "graphics clock asked for"},
      {"clocks.applications.memory", "clocks.applications.mem", "MHz", GPU(Number(gpu.application_memory_mhz)),
       "memory clock asked for"},
      {"clocks.default_applications.graphics", "clocks.default_applications.gr", "MHz", GPU(Number(gpu.default_sm_mhz)),
       "graphics clock by default"},
      {"clocks.default_applications.memory", "clocks.default_applications.mem", "MHz",
       GPU(Number(gpu.default_memory_mhz)), "memory clock by default"},
      {"clocks_event_reasons.supported", "clocks_throttle_reasons.supported", nullptr, GPU(Value(HexText64(0xef))),
       "reasons that the board can give, as bits"},
      {"clocks_event_reasons.active", "clocks_throttle_reasons.active", nullptr,
       GPU(gpu.clock_reasons ? Value(HexText64(*gpu.clock_reasons)) : Value()), "reasons that hold, as bits"},
      {"clocks_event_reasons.gpu_idle", "clocks_throttle_reasons.gpu_idle", nullptr, GPU(Reason(gpu, 1)),
       "whether this is why the clocks are as they are"},
      {"clocks_event_reasons.applications_clocks_setting", "clocks_throttle_reasons.applications_clocks_setting",
       nullptr, GPU(Reason(gpu, 2)), "whether this is why the clocks are as they are"},
      {"clocks_event_reasons.sw_power_cap", "clocks_throttle_reasons.sw_power_cap", nullptr, GPU(Reason(gpu, 4)),
       "whether this is why the clocks are as they are"},
      {"clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown", nullptr, GPU(Reason(gpu, 200)),
       "whether this is why the clocks are as they are"},
      {"clocks_event_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown", nullptr,
       GPU(Reason(gpu, 64)), "whether this is why the clocks are as they are"},
      {"clocks_event_reasons.hw_power_brake_slowdown", "clocks_throttle_reasons.hw_power_brake_slowdown", nullptr,
       GPU(Reason(gpu, 128)), "whether this is why the clocks are as they are"},
      {"clocks_event_reasons.sw_thermal_slowdown", "clocks_throttle_reasons.sw_thermal_slowdown", nullptr,
       GPU(Reason(gpu, 32)), "whether this is why the clocks are as they are"},
      {"clocks_event_reasons.sync_boost", "clocks_throttle_reasons.sync_boost", nullptr, GPU(Reason(gpu, 16)),
       "whether this is why the clocks are as they are"},
      {"fabric.state", nullptr, nullptr,
       GPU(gpu.fabric_state && *gpu.fabric_state == 3 ? Value(std::string("Completed")) : Value()),
       "registration with the fabric"},
      {"fabric.status", nullptr, nullptr,
       GPU(gpu.fabric_state && *gpu.fabric_state == 3 ? Value(std::string("Success")) : Value()), "how it ended"},
      {"protected_memory.total", nullptr, "MiB", GPU(Value(std::string("0"))), "memory for confidential computing"},
      {"protected_memory.used", nullptr, "MiB", GPU(Value(std::string("0"))), "of it, used"},
      {"protected_memory.free", nullptr, "MiB", GPU(Value(std::string("0"))), "of it, free"},
      {"gpu_recovery_action", nullptr, nullptr, GPU(RecoveryAction(gpu)), "what brings the GPU back to health"},
      {"vgpu_driver_capability.heterogenous_multivGPU", nullptr, nullptr, GPU(Value()), "vGPU"},
  };
  return fields;
}
#undef GPU

}  // namespace mete::emulator::smi
