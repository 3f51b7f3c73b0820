// A made-up node for tests of the broker: temporary directories with the files a driver and an interceptor have, a
// driver made of plain data, and tenants that speak ledger/messages.h. One thread, but for the broker it runs.
#ifndef METE_SHARE_TESTING_NODE_H_
#define METE_SHARE_TESTING_NODE_H_

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ledger/layout.h"
#include "ledger/messages.h"
#include "nvml/fake.h"
#include "share/broker.h"
#include "share/client.h"

namespace mete::share::testing {

// Waits until `holds` does; false after a minute, so that a test fails instead of hanging.
bool Eventually(const std::function<bool()>& holds);

class Node {
 public:
  Node();
  ~Node();  // stops the broker and removes everything

  Broker::Options Options() const;
  // Runs a broker in a thread of this process. Its failure to start is returned.
  Status Start(std::chrono::milliseconds bypass_grace = std::chrono::seconds(3));
  void Stop();  // it ends; shares stay
  bool running() const { return broker_ != nullptr; }

  // Runs a broker in a process of its own, killed by SIGKILL when it comes for the `nth` time (from 1) to a point that
  // starts with `point`, or by Kill. Returns when it listens.
  pid_t Fork(const std::string& point = "", int nth = 1);
  // True if the process was killed by SIGKILL (and has been waited for).
  static bool Kill(pid_t broker);

  StatusOr<Json> Call(const Command& command);
  StatusOr<Json> MakeShare(
      const std::string& name, const std::function<void(Command&)>& change = [](Command&) {});
  StatusOr<Json> Do(
      Op op, const std::string& share, const std::function<void(Command&)>& change = [](Command&) {});

  nvml::FakeLibrary driver;  // change it only while no broker runs in this process
  std::filesystem::path root;
  Places places;

 private:
  std::unique_ptr<Broker> broker_;
  std::thread thread_;
  std::unique_ptr<Client> client_;
};

// A process of a share, as the interceptor is one. Lives in the test's process unless it is forked.
class FakeTenant {
 public:
  explicit FakeTenant(std::string directory) : directory_(std::move(directory)) {}
  ~FakeTenant();
  FakeTenant(const FakeTenant&) = delete;
  FakeTenant& operator=(const FakeTenant&) = delete;

  // Empty: admitted. Otherwise why not.
  std::string Attach();
  std::string Reattach(const std::string& share_id);
  std::string Observe();
  bool AskForAudit();

  ledger::View view(uint32_t gpu = 0) const { return {limits_, ledger_, gpu, reply_.slot}; }
  const ledger::AttachReply& reply() const { return reply_; }
  int doorbell() const { return doorbell_.get(); }
  void Disconnect() { socket_.Reset(); }

 private:
  std::string Exchange(const void* message, size_t size, int fd);

  std::string directory_;
  Fd socket_, ledger_fd_, doorbell_;
  ledger::AttachReply reply_ = {};
  const ledger::LimitsPage* limits_ = nullptr;
  ledger::LedgerPage* ledger_ = nullptr;
};

// Runs `body` in a forked process and ends it with what `body` returns. The caller waits or kills.
pid_t InProcess(const std::function<int()>& body);

}  // namespace mete::share::testing

#endif  // METE_SHARE_TESTING_NODE_H_
