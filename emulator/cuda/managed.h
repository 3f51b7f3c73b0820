// What a program says of managed memory. Guarded by the mutex in managed.cc; -1 and -2 are the documented ids of the
// host and of nothing.
#ifndef METE_EMULATOR_CUDA_MANAGED_H_
#define METE_EMULATOR_CUDA_MANAGED_H_

#include <set>

#include "emulator/cuda/exports.h"

namespace mete::emulator::cuda {

struct Advice {
  static constexpr int kHost = -1, kNowhere = -2;
  bool read_mostly = false;
  int preferred = kNowhere, last_prefetch = kNowhere;
  std::set<int> accessed_by;
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_MANAGED_H_
