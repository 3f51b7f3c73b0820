#include "share/broker.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/log.h"
#include "ledger/futex.h"

namespace mete::share {
namespace {

// A broker that was just killed keeps its locks until the kernel has taken down what it had mapped.
constexpr std::chrono::milliseconds kDying(1000);

bool LockWithin(std::chrono::milliseconds patience, int fd) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Opens and locks a file; the lock is the kernel's and ends with the process. The file says who holds it.
StatusOr<Fd> Lock(const std::string& path, const std::string& note, const std::string& what) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Lacks("cannot open {}: {}", path, std::strerror(errno));
  if (!LockWithin(kDying, fd.get())) {
    std::array<char, 512> holder = {};
    [[maybe_unused]] const ssize_t got = pread(fd.get(), holder.data(), holder.size() - 1, 0);
    return Refused("{} is in use by the broker {}", what, holder.data());
  }
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), note.data(), note.size(), 0) < 0) {
    return Lacks("cannot write {}: {}", path, std::strerror(errno));
  }
  return fd;
}

}  // namespace

Broker::Broker(Options options)
    : options_(std::move(options)),
      // Even, and ahead of every earlier broker's: that one counted by two in at least 6 ms.
      audits_(static_cast<uint32_t>(ledger::MonotonicNs() / 1'000'000) & ~uint32_t{1}) {}

Broker::~Broker() {
  audit_.reset();
  for (auto& entry : shares_) LeaveWindows(*entry.second);
}

StatusOr<std::unique_ptr<Broker>> Broker::Start(Options options) {
  std::unique_ptr<Broker> broker(new Broker(std::move(options)));
  METE_RETURN_IF_ERROR(MakePlaces(broker->options_.places));
  METE_RETURN_IF_ERROR(broker->TakeLocks());
  METE_ASSIGN_OR_RETURN(broker->nvml_, broker->options_.open_nvml());
  broker->MakeMechanisms();
  broker->OpenKernelLimits();
  METE_ASSIGN_OR_RETURN(broker->loop_, Loop::Make());
  METE_ASSIGN_OR_RETURN(broker->book_, Book::Open(broker->options_.places.book));
  broker->demand_ = std::make_unique<MigDemand>(*broker->book_);
  METE_RETURN_IF_ERROR(broker->Refresh());
  METE_RETURN_IF_ERROR(broker->Heal());
  METE_RETURN_IF_ERROR(broker->Listen());
  const Loop* loop = broker->loop_.get();
  broker->audit_ = std::make_unique<Audit>(*broker->nvml_, broker->options_.audit_period, [loop] { loop->Wake(); });
  log::Info("broker started node={} driver_root={} shares={}", broker->options_.places.node,
            broker->options_.places.driver_root, broker->shares_.size());
  return broker;
}

Status Broker::TakeLocks() {
  const std::string note = fmt::format("with pid {}, whose runtime directory is {}", getpid(), options_.places.runtime);
  METE_ASSIGN_OR_RETURN(broker_lock_, Lock(options_.places.broker_lock, note, "node " + options_.places.node));
  METE_ASSIGN_OR_RETURN(book_lock_, Lock(options_.places.book_lock, note, "the book " + options_.places.book));
  return OkStatus();
}

Status Broker::Heal() {
  METE_ASSIGN_OR_RETURN(const std::string boot, book_->Boot());
  if (const std::string now = BootId(); boot != now) METE_RETURN_IF_ERROR(book_->StartBoot(now));
  METE_ASSIGN_OR_RETURN(const std::vector<ShareRow> rows, book_->Shares());
  METE_ASSIGN_OR_RETURN(const std::vector<SlotRow> slots, book_->Slots());
  METE_ASSIGN_OR_RETURN(const std::vector<HolderRow> holders, book_->Holders());
  RestoreLayout();
  for (const ShareRow& row : rows) METE_RETURN_IF_ERROR(HealShare(row, slots, holders));
  for (const auto& entry : gpus_) Allot(entry.first);
  healed_ = true;
  return RemoveOrphans();
}

Status Broker::HealShare(const ShareRow& row, const std::vector<SlotRow>& slots,
                         const std::vector<HolderRow>& holders) {
  std::vector<SlotRow> alive;
  for (const SlotRow& slot : slots) {
    if (slot.share_id != row.grant.id) continue;
    if (Alive(slot.process)) {
      alive.push_back(slot);
    } else {
      METE_RETURN_IF_ERROR(book_->DropSlot(row.grant.id, slot.slot));
    }
  }
  std::vector<HolderRow> held;
  for (const HolderRow& holder : holders) {
    if (holder.share_id == row.grant.id && Alive(holder.process)) held.push_back(holder);
  }
  std::string reason;
  for (const plan::GpuGrant& gpu : row.grant.gpus) {
    if (gpus_.count(gpu.uuid) == 0) reason = fmt::format("its GPU {} is not there any more", gpu.uuid);
  }
  if (row.state != RowState::kInForce) {
    reason = "the broker died while it was being made or ended";
  } else if (row.kind == Kind::kRun && alive.empty() && held.empty()) {
    reason = "its last process has gone";
  }
  if (!reason.empty()) {
    log::Info("healed share={} removed: {}", row.grant.share, reason);
    METE_RETURN_IF_ERROR(book_->SetState(row.grant.id, RowState::kEnding));
    ShareRow ending = row;
    ending.state = RowState::kEnding;
    (void)ReleaseRow(ending);  // what fails is noted, and tried again
    Note(row.grant.share, {}, "ended", reason);
    return OkStatus();
  }
  auto share = std::make_unique<Share>();
  share->row = row;
  for (plan::GpuGrant& gpu : share->row.grant.gpus) gpu.index = gpus_[gpu.uuid].reading.index;
  Share& healed = *share;
  shares_[row.grant.id] = std::move(share);
  const Status in_force = PutInForce(healed, alive);
  if (!in_force.ok() && (healed.intercepted() || !healed.tenancy)) return in_force;
  if (!healed.intercepted()) {
    // A device that does not give now what it gave before takes nothing from the other shares.
    if (in_force.ok()) {
      (void)Verify(healed);
    } else {
      healed.invalid = Message(in_force);
      Note(row.grant.share, {}, "invalid", healed.invalid);
    }
  }
  for (const auto& entry : healed.tenancy->holders()) {
    WatchSlot(healed, entry.second);
    EnterKernelGroup(healed, entry.second.process.pid);  // the group may be new
  }
  for (const HolderRow& holder : held) {
    if (StatusOr<Fd> pidfd = OpenPidFd(holder.process); pidfd.ok()) {
      METE_RETURN_IF_ERROR(Hold(healed, holder.process, std::move(*pidfd)));
    }
  }
  EndIfDone(row.grant.id);
  return OkStatus();
}

// Directories of grants that the book does not know: left by a broker that died between two steps.
Status Broker::RemoveOrphans() {
  std::set<std::string> known;
  for (const auto& entry : shares_) known.insert(Directory(entry.second->row.grant));
  for (const auto& entry : unreleased_) known.insert(Directory(entry.second.grant));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.places.grants, error)) {
    if (known.count(entry.path().string()) != 0) continue;
    std::error_code failed;
    std::filesystem::remove_all(entry.path(), failed);
    log::Info("removed {}: no share of the book", entry.path().string());
  }
  RemoveKernelOrphans();
  return OkStatus();
}

Status Broker::Listen() {
  listener_.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string& path = options_.places.socket;
  if (path.size() >= sizeof(address.sun_path)) return Lacks("the socket's path {} is too long", path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str());  // of a killed broker; the lock says that there is no other
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_.get(), 128) != 0) {
    return Lacks("cannot listen on {}: {}", path, std::strerror(errno));
  }
  return loop_->Add(listener_.get(), EPOLLIN, [this](uint32_t) { OnCallerConnects(); });
}

Status Broker::Run() {
  using Clock = std::chrono::steady_clock;
  auto busy = Clock::now();
  while (!stop_.load()) {
    loop_->RunOnce(200);
    if (audit_) {
      if (const auto reading = audit_->Take()) OnReading(*reading);
    }
    if (NodeGone()) break;
    RemoveKernelLeftovers();
    if (!shares_.empty() || !callers_.empty() || !unreleased_.empty()) busy = Clock::now();
    if (Clock::now() - busy >= options_.idle && TryToLeave()) break;
  }
  log::Info("broker ends node={} shares={}", options_.places.node, shares_.size());
  return OkStatus();
}

void Broker::Stop() {
  stop_.store(true);
  loop_->Wake();
}

// Nobody may be turned away by a broker that is just leaving: with the start lock held no other can be started, and
// whoever is already in the queue is served first.
bool Broker::TryToLeave() {
  const Fd start(open(options_.places.start_lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (start.valid() && flock(start.get(), LOCK_EX | LOCK_NB) != 0) return false;
  OnCallerConnects();
  if (!callers_.empty()) return false;
  unlink(options_.places.socket.c_str());
  loop_->Remove(listener_.get());
  listener_.Reset();
  broker_lock_.Reset();
  book_lock_.Reset();
  return true;
}

// An emulated node can be taken down under its shares: then there is nothing left to grant.
bool Broker::NodeGone() {
  const StatusOr<std::string> node = NodeName(options_.places.driver_root);
  if (node.ok() && *node == options_.places.node) return false;
  log::Warn("the driver root {} has gone: its {} shares end with it", options_.places.driver_root, shares_.size());
  unreleased_.clear();
  std::vector<Share*> all;
  for (auto& entry : shares_) all.push_back(entry.second.get());
  for (Share* share : all) {
    if (const Status ended = End(*share); !ended.ok()) log::Warn("{}", Message(ended));
  }
  audit_.reset();
  demand_.reset();
  book_.reset();
  std::error_code error;
  std::filesystem::remove_all(options_.places.state_node, error);
  std::filesystem::remove_all(options_.places.runtime_node, error);
  return true;
}

}  // namespace mete::share
