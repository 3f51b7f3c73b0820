#include "share/testing/node.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "ledger/pages.h"
#include "ledger/wire.h"

namespace mete::share::testing {
namespace {

namespace fs = std::filesystem;

void WriteFile(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The broker owns its library; the test keeps the data.
class Borrowed final : public nvml::Library {
 public:
  explicit Borrowed(const nvml::FakeLibrary& fake) : fake_(fake) {}
  StatusOr<std::vector<std::shared_ptr<const nvml::Device>>> Devices() const override { return fake_.Devices(); }
  const std::string& path() const override { return fake_.path(); }
  const std::string& driver_version() const override { return fake_.driver_version(); }
  const std::string& nvml_version() const override { return fake_.nvml_version(); }
  uint32_t cuda_version() const override { return fake_.cuda_version(); }
  bool emulated() const override { return fake_.emulated(); }

 private:
  const nvml::FakeLibrary& fake_;
};

}  // namespace

bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

Node::Node() {
  std::string pattern = "/tmp/mete-node-XXXXXX";
  root = mkdtemp(pattern.data());
  WriteFile(root / "node/usr/lib/x86_64-linux-gnu/libcuda.so.1", "driver");
  WriteFile(root / "node/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "nvml");
  WriteFile(root / "proxies/libcuda.so.1", "proxy");
  WriteFile(root / "proxies/libnvidia-ml.so.1", "nvml proxy");
  WriteFile(root / "proxies/libmete-preload.so", "preload");
  places = *PlacesBelow((root / "node").string(), (root / "r").string(), (root / "s").string());
  driver.Add();
  client_ = std::make_unique<Client>(places, [] { return Lacks("no broker runs"); });
}

Node::~Node() {
  Stop();
  fs::remove_all(root);
}

Broker::Options Node::Options() const {
  Broker::Options options;
  options.places = places;
  options.interceptor_dir = (root / "proxies").string();
  options.open_nvml = [this]() -> StatusOr<std::unique_ptr<nvml::Library>> {
    return std::make_unique<Borrowed>(driver);
  };
  options.idle = std::chrono::hours(1);
  options.audit_period = std::chrono::milliseconds(10);
  return options;
}

Status Node::Start(std::chrono::milliseconds bypass_grace) {
  Broker::Options options = Options();
  options.bypass_grace = bypass_grace;
  METE_ASSIGN_OR_RETURN(broker_, Broker::Start(std::move(options)));
  thread_ = std::thread([this] { (void)broker_->Run(); });
  return OkStatus();
}

void Node::Stop() {
  if (!broker_) return;
  broker_->Stop();
  thread_.join();
  broker_.reset();
}

pid_t Node::Fork(const std::string& point, int nth) {
  const pid_t child = fork();
  if (child == 0) {
    Broker::Options options = Options();
    int left = nth;
    options.reached = [&point, &left](const char* reached) {
      if (!point.empty() && std::string(reached).rfind(point, 0) == 0 && --left == 0) raise(SIGKILL);
    };
    StatusOr<std::unique_ptr<Broker>> broker = Broker::Start(std::move(options));
    if (!broker.ok()) {
      fmt::print(stderr, "{}\n", Message(broker.status()));
      _exit(1);
    }
    (void)(*broker)->Run();
    _exit(0);
  }
  Command hello;
  Eventually([this, child, &hello] {
    siginfo_t ended = {};
    waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    return ended.si_pid == child || Call(hello).ok();
  });
  return child;
}

bool Node::Kill(pid_t broker) {
  kill(broker, SIGKILL);
  int status = 0;
  return waitpid(broker, &status, 0) == broker && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

StatusOr<Json> Node::Call(const Command& command) { return client_->Call(command); }

StatusOr<Json> Node::MakeShare(const std::string& name, const std::function<void(Command&)>& change) {
  Command command;
  command.op = Op::kMake;
  command.id = RandomId();
  command.request.share = name;
  change(command);
  return Call(command);
}

StatusOr<Json> Node::Do(Op op, const std::string& share, const std::function<void(Command&)>& change) {
  Command command;
  command.op = op;
  command.share = share;
  change(command);
  return Call(command);
}

FakeTenant::~FakeTenant() {
  if (limits_ != nullptr) ledger::Unmap(limits_);
  if (ledger_ != nullptr) ledger::Unmap(ledger_);
}

std::string FakeTenant::Exchange(const void* message, size_t size, int fd) {
  socket_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (directory_ + "/broker.sock").c_str(), sizeof(address.sun_path) - 1);
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return std::string("connect: ") + std::strerror(errno);
  }
  if (ledger::SendPacket(socket_.get(), message, size, &fd, fd >= 0 ? 1 : 0) != 0) return "cannot send";
  char buffer[1024];
  ledger::Packet packet;
  if (ledger::ReceivePacket(socket_.get(), buffer, sizeof(buffer), 0, &packet) != 0 || packet.size == 0)
    return "no reply";
  if (!ledger::Decode(buffer, packet.size, &reply_)) return "not a reply";
  if (reply_.header.type == static_cast<uint32_t>(ledger::MessageType::kRefused)) return reply_.message;
  if (packet.fd_count < 2) return "no pages";
  const Fd limits_fd(packet.fds[0]);
  ledger_fd_.Reset(packet.fds[1]);
  doorbell_.Reset(packet.fd_count > 2 ? packet.fds[2] : -1);
  if (limits_ != nullptr) ledger::Unmap(limits_);
  if (ledger_ != nullptr) ledger::Unmap(ledger_);
  limits_ = nullptr;
  ledger_ = nullptr;
  if (ledger::MapLimits(limits_fd.get(), &limits_) != ledger::PageError::kNone) return "cannot map limits";
  if (ledger::MapLedger(ledger_fd_.get(), &ledger_) != ledger::PageError::kNone) return "cannot map ledger";
  return {};
}

std::string FakeTenant::Attach() {
  ledger::AttachRequest request = {};
  request.header = ledger::HeaderFor(ledger::MessageType::kAttach, sizeof(request));
  std::strcpy(request.program, "tenant");
  return Exchange(&request, sizeof(request), -1);
}

std::string FakeTenant::Observe() {
  ledger::AttachRequest request = {};
  request.header = ledger::HeaderFor(ledger::MessageType::kObserve, sizeof(request));
  return Exchange(&request, sizeof(request), -1);
}

std::string FakeTenant::Reattach(const std::string& share_id) {
  ledger::ReattachRequest request = {};
  request.header = ledger::HeaderFor(ledger::MessageType::kReattach, sizeof(request));
  request.slot = reply_.slot;
  request.generation = reply_.generation;
  ToBytes(share_id, request.share_id);
  return Exchange(&request, sizeof(request), ledger_fd_.get());
}

bool FakeTenant::AskForAudit() {
  const ledger::AuditRequest request = {ledger::HeaderFor(ledger::MessageType::kAudit, sizeof(request))};
  return ledger::SendPacket(socket_.get(), &request, sizeof(request), nullptr, 0) == 0;
}

namespace {

// More of each size than an allocator keeps at hand for a thread, so that it must go to where its locks are.
void AllocateOfEverySize() {
  constexpr size_t kMost = 300;
  for (size_t size = 16; size <= size_t{128} << 10; size += size < 256 ? 16 : size / 8) {
    const size_t count = size <= 4096 ? kMost : kMost / 12;
    std::array<void*, kMost> held;
    for (size_t i = 0; i < count; ++i) held[i] = malloc(size);
    for (size_t i = 0; i < count; ++i) free(held[i]);
  }
}

}  // namespace

// The broker is a thread of this process, and a sanitizer's allocator may be locked by it at the instant of the fork:
// then the child would wait for ever. It says that it can allocate; one that does not say so is replaced.
pid_t InProcess(const std::function<int()>& body) {
  for (;;) {
    std::array<int, 2> ready = {-1, -1};
    if (pipe2(ready.data(), O_CLOEXEC) != 0) return -1;
    const Fd from(ready[0]), to(ready[1]);
    const pid_t child = fork();
    if (child == 0) {
      AllocateOfEverySize();
      _exit(write(to.get(), "x", 1) == 1 ? body() : 250);
    }
    pollfd said = {from.get(), POLLIN, 0};
    if (child < 0 || poll(&said, 1, 20'000) == 1) return child;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace mete::share::testing
