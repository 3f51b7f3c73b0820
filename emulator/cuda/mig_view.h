// What MIG makes of the node's GPUs: which are cut, their compute instances, and each as the device that CUDA sees.
// Read once from the engine; instances made later are not seen, as a driver enumerates in cuInit. One thread.
#ifndef METE_EMULATOR_CUDA_MIG_VIEW_H_
#define METE_EMULATOR_CUDA_MIG_VIEW_H_

#include <vector>

#include "emulator/cuda/visible.h"
#include "emulator/engine/client.h"

namespace mete::emulator::cuda {

class MigView {
 public:
  explicit MigView(Client* client);

  const std::vector<bool>& mode() const { return mode_; }                      // by GPU
  const std::vector<MigSeat>& seats() const { return seats_; }                 // by GPU, then as NVML numbers them
  GpuInfo InfoOf(const MigSeat& seat) const { return infos_[IndexOf(seat)]; }  // of one of seats()

 private:
  size_t IndexOf(const MigSeat& seat) const;
  void AddSeats(const GpuInfo& whole, uint32_t gpu, const MigState& state, const std::vector<MigProfileInfo>& profiles);

  std::vector<bool> mode_;
  std::vector<MigSeat> seats_;
  std::vector<GpuInfo> infos_;  // side by side with seats_
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_MIG_VIEW_H_
