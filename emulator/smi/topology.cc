#include "emulator/smi/topology.h"

#include <cstdio>

namespace mete::emulator::smi {

namespace {

std::string LevelWord(int level) {
  switch (level) {
    case 0: return "X";
    case 10: return "PIX";
    case 20: return "PXB";
    case 30: return "PHB";
    case 40: return "NODE";
    case 50: return "SYS";
    default: return "N/A";
  }
}

std::string StatusWord(int status) {
  switch (status) {
    case 0: return "OK";
    case 1: return "CNS";
    case 2: return "GNS";
    case 3: return "TNS";
    case 4: return "DR";
    case 5: return "NS";
    default: return "U";
  }
}

std::string GpuName(size_t index) { return "GPU" + std::to_string(index); }

}  // namespace

std::string TopologyMatrix(const SmiTopology& topology) {
  const size_t count = topology.levels.size();
  std::string text = "\t\033[4m";  // underlined, also in a file, as the tool does it
  for (size_t i = 0; i < count; ++i) text += GpuName(i) + "\t";
  text += "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n";
  for (size_t i = 0; i < count; ++i) {
    text += GpuName(i) + "\t";
    for (size_t j = 0; j < count; ++j) {
      const unsigned links = topology.nvlinks[i][j];
      text += i == j ? " X " : links > 0 ? "NV" + std::to_string(links) : LevelWord(topology.levels[i][j]);
      text += "\t";
    }
    text += topology.processors[i] + "\t" + topology.memory[i] + "\t\tN/A\n";
  }
  text +=
      "\nLegend:\n\n"
      "  X    = Self\n"
      "  SYS  = through PCIe and the interconnect between processors\n"
      "  NODE = through PCIe and the interconnect between host bridges of one processor\n"
      "  PHB  = through PCIe and one host bridge\n"
      "  PXB  = through several PCIe bridges, without a host bridge\n"
      "  PIX  = through at most one PCIe bridge\n"
      "  NV#  = through that many NVLinks\n";
  return text;
}

std::string PeerMatrix(const SmiTopology& topology, char kind) {
  constexpr std::string_view kKinds = "rwnap";  // NVML's order
  const size_t which = kKinds.find(kind);
  const size_t count = topology.peers.size();
  std::string text = " \t";
  for (size_t i = 0; i < count; ++i) text += GpuName(i) + "\t";
  text += "\n";
  for (size_t i = 0; i < count; ++i) {
    text += " " + GpuName(i) + "\t";
    for (size_t j = 0; j < count; ++j) {
      const bool known = which < topology.peers[i][j].size();
      text += (i == j ? "X" : StatusWord(known ? topology.peers[i][j][which] : -1)) + "\t";
    }
    text += "\n";
  }
  return text +
         "\nLegend:\n\n"
         "  X   = Self\n"
         "  OK  = works\n"
         "  CNS = the chipset does not do it\n"
         "  GNS = a GPU does not do it\n"
         "  TNS = the topology does not allow it\n"
         "  NS  = not supported\n"
         "  U   = unknown\n";
}

std::string LinkStatus(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen) {
  std::string text;
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    text += "GPU " + std::to_string(gpu.index) + ": " + gpu.name + " (UUID: " + gpu.uuid + ")\n";
    for (size_t link = 0; link < gpu.nvlink_mbps.size(); ++link) {
      char line[64];
      if (const std::optional<uint32_t>& mbps = gpu.nvlink_mbps[link]) {
        snprintf(line, sizeof(line), "\t Link %zu: %.3f GB/s\n", link, *mbps / 1000.0);
      } else {
        snprintf(line, sizeof(line), "\t Link %zu: <inactive>\n", link);
      }
      text += line;
    }
  }
  return text;
}

}  // namespace mete::emulator::smi
