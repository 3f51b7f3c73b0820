// What a process holds of a GPU beyond what its interceptor charged for it: a context larger than its estimate, code
// and variables of modules, heaps of the driver, memory whose maker is gone, and whatever went past the interceptor.
// Found by holding the driver's count against the ledger.
//
// The two are not read at one instant: a block that comes and goes between the readings looks like overhead. So a
// change counts when three readings in a row show it, in whatever size they have in common. Pure; bytes.
#ifndef METE_SHARE_OVERHEAD_H_
#define METE_SHARE_OVERHEAD_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace mete::share {

class Overhead {
 public:
  static constexpr unsigned kReadings = 3;  // for a change to count

  // `held`: the driver's count. `charged`: the larger of the ledger's before and after the driver was asked, so that
  // what is just being taken or freed is not counted twice. Returns the overhead now.
  uint64_t Next(uint64_t held, uint64_t charged) {
    recent_[next_++ % kReadings] = held > charged ? held - charged : 0;
    const auto [least, most] = std::minmax_element(recent_.begin(), recent_.end());
    bytes_ = std::clamp(bytes_, *least, *most);
    return bytes_;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::array<uint64_t, kReadings> recent_ = {};
  unsigned next_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace mete::share

#endif  // METE_SHARE_OVERHEAD_H_
