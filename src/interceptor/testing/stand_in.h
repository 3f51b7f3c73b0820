// A broker for tests and benchmarks: makes a grant directory with links to the proxies and to a driver, two pages, and
// answers those who attach. No book, no audit; the test writes the limits itself. Serves from a thread of its own until
// destroyed. Not linked into anything that ships.
#ifndef METE_INTERCEPTOR_TESTING_STAND_IN_H_
#define METE_INTERCEPTOR_TESTING_STAND_IN_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "bench/null-driver/truth.h"
#include "ledger/layout.h"

namespace mete::interceptor::testing {

using Uuid = std::array<uint8_t, 16>;
// What the null driver says of its device.
Uuid NullDeviceUuid(int device);

struct StandInOptions {
  std::vector<Uuid> gpus = {NullDeviceUuid(0)};
  uint64_t quota = ledger::kNoQuota;
  uint64_t context_bytes = 0;
  bool tracked = false;
  uint32_t share = ledger::kFullShare;
  ledger::ComputeMode mode = ledger::ComputeMode::kWorkConserving;
  std::string proxy;     // path of the proxy libcuda.so.1; libmete-preload.so is linked too if it stands beside it
  std::string driver;    // path of the driver behind it
  std::string ml_proxy;  // empty: none
  std::string ml_driver;
  uint64_t heartbeat_ahead_ns = 0;   // beats so far in the future: never stale, however late this thread runs
  const NullTruth* truth = nullptr;  // of one process: what its audits find. Without it they find nothing
  std::string refusal;               // not empty: refuses everybody with these words
};

class StandIn {
 public:
  explicit StandIn(const StandInOptions& options);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  const std::string& Directory() const { return directory_; }
  std::string Proxy() const { return directory_ + "/libcuda.so.1"; }
  ledger::LimitsPage& Limits() { return *limits_; }
  ledger::LedgerPage& Ledger() { return *ledger_; }

  // Dies: the socket and every connection are gone, the pages stay with those who have them.
  void Stop();
  // A new broker in the same place, with a new limits page; it knows the ledger only from those who hand it back.
  void Start();

  uint32_t Attached() const { return attached_; }
  uint32_t Reattached() const { return reattached_; }
  uint64_t Rings() const;  // of the doorbell, since the last call
  void Audit();            // says that one has begun and ended; it does so by itself when asked, and finds nothing
  uint32_t AuditsAsked() const { return audits_asked_; }

 private:
  void MakePages();
  void Serve();
  void Answer(int connection);

  StandInOptions options_;
  std::string directory_;
  ledger::LimitsPage* limits_ = nullptr;
  ledger::LedgerPage* ledger_ = nullptr;
  int limits_fd_ = -1, ledger_fd_ = -1, doorbell_ = -1, listener_ = -1, wake_ = -1;
  uint32_t generation_ = 0, slots_given_ = 0;
  std::atomic<uint32_t> attached_{0}, reattached_{0}, audits_asked_{0};
  std::atomic<bool> stopping_{false};
  std::vector<int> connections_;
  std::thread thread_;
};

}  // namespace mete::interceptor::testing

#endif  // METE_INTERCEPTOR_TESTING_STAND_IN_H_
