// `nvidia-smi topo` and `nvidia-smi nvlink`: how the GPUs hang together. Pure functions.
#ifndef METE_EMULATOR_SMI_TOPOLOGY_H_
#define METE_EMULATOR_SMI_TOPOLOGY_H_

#include <string>
#include <vector>

#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

std::string TopologyMatrix(const SmiTopology& topology);
// kind: r read, w write, n NVLink, a atomics, p PCI properties.
std::string PeerMatrix(const SmiTopology& topology, char kind);
std::string LinkStatus(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_TOPOLOGY_H_
