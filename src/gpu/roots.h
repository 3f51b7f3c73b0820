// Where a node's driver, device files and kernel views are. On a plain host they are "/", "/", "/sys" and "/proc"; for
// a containerised driver or an emulated node they are elsewhere. Everything mete reads of a node is below these. A node
// is identified by its driver root's device and inode, never by its spelling. Plain values; any thread.
#ifndef METE_GPU_ROOTS_H_
#define METE_GPU_ROOTS_H_

#include <string>

namespace mete::gpu {

struct Roots {
  std::string driver = "/";    // usr/lib/…/libnvidia-ml.so.1, usr/bin/nvidia-smi
  std::string dev = "/";       // dev/nvidia0
  std::string sys = "/sys";    // bus/pci/devices
  std::string proc = "/proc";  // driver/nvidia

  friend bool operator==(const Roots&, const Roots&) = default;
};

}  // namespace mete::gpu

#endif  // METE_GPU_ROOTS_H_
