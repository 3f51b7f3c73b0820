// The board catalogue: what NVIDIA's boards are and can do, embedded from data/boards.yaml with its sources.
// Immutable after the first call of BuiltIn(); any thread.
#ifndef METE_GPU_CATALOGUE_H_
#define METE_GPU_CATALOGUE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantities.h"
#include "base/status.h"

namespace mete::gpu {

struct Board {
  std::string id;         // "a100-sxm4-40gb"
  std::string nvml_name;  // "NVIDIA A100-SXM4-40GB"
  std::vector<std::string> name_variants;
  std::string architecture;  // volta, turing, ampere, ada, hopper, blackwell
  int compute_major = 0, compute_minor = 0;
  int sm_count = 0;
  Bytes memory;                  // as NVML prints it
  int memory_bandwidth_gbs = 0;  // 10^9 bytes per second
  int l2_mib = 0;
  int pcie_gen = 0, pcie_lanes = 0;  // 0: the host link is not PCIe
  int max_power_w = 0;
  uint32_t pci_device_id = 0;  // device << 16 | vendor; 0 unknown
  bool time_slicing = false, timeslice_policy = false;
  bool mps = false, mps_static_partitions = false;
  int mps_clients = 0, mps_clients_through_cuda_13_0 = 0;
  bool mig = false;
  bool vgpu_c_series = false, vgpu_fractional = false;
  std::string vgpu_type_prefix;  // "A100X" in the vGPU type "A100X-4C"
  Bytes context_memory;          // estimate: device memory of one context before it allocates anything
  std::map<std::string, std::vector<std::string>> sources;  // field → source ids
  std::vector<std::string> estimated;                       // fields that are estimates
};

// The name without its vendor word: "A100-SXM4-40GB", "T4".
std::string ShortName(const Board& board);

class Catalogue {
 public:
  // The catalogue compiled into this program.
  static const Catalogue& BuiltIn();
  // The same format from elsewhere; Usage with the line of the first problem.
  static StatusOr<Catalogue> Parse(std::string_view yaml);

  const std::vector<Board>& boards() const { return boards_; }
  // By id, NVML name or the NVML name without its vendor word, ignoring case: "A100-SXM4-40GB", "T4", "Tesla T4".
  // NoSuch names the nearest boards.
  StatusOr<const Board*> Find(std::string_view name) const;
  // The board that a device reports as `nvml_name`, or null: exact names and variants only.
  const Board* ByDeviceName(std::string_view nvml_name) const;
  // What a source id means, for people; empty if unknown.
  std::string Source(std::string_view id) const;

 private:
  std::vector<Board> boards_;
  std::map<std::string, std::string, std::less<>> sources_;
};

}  // namespace mete::gpu

#endif  // METE_GPU_CATALOGUE_H_
