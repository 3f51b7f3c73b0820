#include "share/tenancy.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/log.h"
#include "ledger/futex.h"
#include "ledger/gate.h"
#include "ledger/pages.h"
#include "share/protocol.h"

namespace mete::share {
namespace {

constexpr const char* kLedgerName = "mete-ledger";

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void ToBytes(const std::string& text, uint8_t (&bytes)[16]) {
  std::memset(bytes, 0, sizeof(bytes));
  const size_t start = text.rfind("GPU-", 0) == 0 || text.rfind("MIG-", 0) == 0 ? 4 : 0;
  size_t digits = 0;
  for (size_t i = start; i < text.size(); ++i) {
    if (text[i] == '-') continue;
    const int value = HexValue(text[i]);
    if (value < 0 || digits == 32) {
      std::memset(bytes, 0, sizeof(bytes));
      return;
    }
    bytes[digits / 2] = static_cast<uint8_t>(bytes[digits / 2] << 4 | value);
    ++digits;
  }
}

StatusOr<std::unique_ptr<Tenancy>> Tenancy::Make(const plan::Grant& grant, const std::vector<uint64_t>& context_bytes,
                                                 const std::vector<SlotRow>& before) {
  const auto gpus = static_cast<uint32_t>(grant.gpus.size());
  if (gpus == 0 || gpus > ledger::kMaxGpus)
    return Refused("a share may have 1 to {} GPUs, not {}", ledger::kMaxGpus, gpus);
  std::unique_ptr<Tenancy> tenancy(new Tenancy());
  uint8_t id[16];
  ToBytes(grant.id, id);
  uint8_t random[16];
  ToBytes(RandomId(), random);
  uint32_t broker = 0;  // of this broker: differs from every other's, so that tenants see that the page is a new one
  std::memcpy(&broker, random, sizeof(broker));

  const int limits_fd = ledger::CreateLimits(id, gpus, broker | 1, &tenancy->limits_);
  if (limits_fd < 0) return Lacks("cannot make the limits page of {}: {}", grant.share, std::strerror(-limits_fd));
  tenancy->limits_fd_.Reset(limits_fd);
  for (uint32_t i = 0; i < gpus; ++i) {
    ledger::GpuLimits& limits = tenancy->limits_->gpu[i];
    ToBytes(grant.gpus[i].uuid, limits.uuid);
    limits.context_bytes.store(i < context_bytes.size() ? context_bytes[i] : 0);
    limits.memory_quota.store(grant.gpus[i].allotment.quota.count);
  }
  tenancy->limits_->heartbeat_ns.store(ledger::MonotonicNs());

  const int ledger_fd = ledger::CreateLedger(gpus, &tenancy->ledger_);
  if (ledger_fd < 0) return Lacks("cannot make the ledger of {}: {}", grant.share, std::strerror(-ledger_fd));
  tenancy->ledger_fd_.Reset(ledger_fd);

  tenancy->doorbell_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!tenancy->doorbell_.valid())
    return Lacks("cannot make the doorbell of {}: {}", grant.share, std::strerror(errno));

  for (const SlotRow& row : before) {
    if (row.slot >= ledger::kMaxSlots) continue;
    tenancy->next_generation_ = std::max(tenancy->next_generation_, row.generation + 1);
    StatusOr<Fd> pidfd = OpenPidFd(row.process);
    if (!pidfd.ok()) continue;
    tenancy->holders_[row.slot] = {row.slot, row.generation, row.process, row.program, std::move(*pidfd)};
  }
  tenancy->awaits_ledger_ = !tenancy->holders_.empty();
  for (const auto& entry : tenancy->holders_) {
    for (const Fd& fd : MemFdsOf(entry.second.process.pid, kLedgerName)) {
      if (tenancy->awaits_ledger_ && tenancy->Adoptable(fd.get()) && !tenancy->Adopt(fd.get()).ok()) continue;
    }
  }
  return tenancy;
}

Tenancy::~Tenancy() {
  if (limits_ != nullptr) ledger::Unmap(limits_);
  if (ledger_ != nullptr) ledger::Unmap(ledger_);
}

bool Tenancy::IsLedger(int fd) const {
  struct stat theirs, ours;
  return fstat(fd, &theirs) == 0 && fstat(ledger_fd_.get(), &ours) == 0 && theirs.st_dev == ours.st_dev &&
         theirs.st_ino == ours.st_ino;
}

bool Tenancy::Adoptable(int fd) const {
  if (!awaits_ledger_ || IsLedger(fd)) return false;
  ledger::LedgerPage* page = nullptr;
  if (ledger::MapLedger(fd, &page) != ledger::PageError::kNone) return false;
  // It must know one of the processes that the book knows: a tenant may hold ledgers of other shares as well.
  bool known = page->gpu_count == limits_->gpu_count;
  known = known && std::any_of(holders_.begin(), holders_.end(), [page](const auto& entry) {
            const ledger::Slot& slot = page->slots[entry.first];
            return slot.generation.load() == entry.second.generation && slot.pid.load() == entry.second.process.pid;
          });
  ledger::Unmap(page);
  return known;
}

Status Tenancy::Adopt(int fd) {
  Fd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  ledger::LedgerPage* page = nullptr;
  if (!own.valid() || ledger::MapLedger(own.get(), &page) != ledger::PageError::kNone) {
    return Refused("the ledger that was handed back cannot be used");
  }
  ledger::Unmap(ledger_);
  ledger_ = page;
  ledger_fd_ = std::move(own);
  awaits_ledger_ = false;
  const uint64_t now = ledger::MonotonicNs();
  for (uint32_t i = 0; i < ledger::kMaxSlots; ++i) {
    const uint32_t generation = ledger_->slots[i].generation.load();
    if (generation == 0) continue;
    const auto holder = holders_.find(i);
    if (holder == holders_.end() || holder->second.generation != generation)
      ledger::ClearSlot(*ledger_, *limits_, i, now);
  }
  return OkStatus();
}

StatusOr<const Tenancy::Holder*> Tenancy::Attach(Peer peer, const std::string& program) {
  if (const Holder* before = Find(peer.process); before != nullptr) Clear(before->slot);
  if (awaits_ledger_) {
    return Refused("the broker was restarted and waits for process {} of this share to come back; try again",
                   holders_.begin()->second.process.pid);
  }
  if (next_generation_ == 0) next_generation_ = 1;
  const int slot = ledger::TakeSlot(*ledger_, peer.process.pid, peer.process.start_time, next_generation_);
  if (slot < 0) return Refused("all {} places for processes of this share are taken", ledger::kMaxSlots);
  const auto index = static_cast<uint32_t>(slot);
  holders_[index] = {index, next_generation_++, peer.process, program, std::move(peer.pidfd)};
  return &holders_[index];
}

const Tenancy::Holder* Tenancy::Find(uint32_t slot, uint32_t generation, const ProcessId& process) const {
  const auto found = holders_.find(slot);
  if (found == holders_.end() || found->second.generation != generation || found->second.process != process)
    return nullptr;
  return &found->second;
}

const Tenancy::Holder* Tenancy::Find(const ProcessId& process) const {
  for (const auto& entry : holders_) {
    if (entry.second.process == process) return &entry.second;
  }
  return nullptr;
}

void Tenancy::Clear(uint32_t slot) {
  const auto found = holders_.find(slot);
  if (found == holders_.end()) return;
  // While the right ledger is still to come, the slot is only struck off: Adopt clears what the book does not know.
  if (!awaits_ledger_) {
    ledger::ClearSlot(*ledger_, *limits_, slot, ledger::MonotonicNs());
    WakeWaiters();
  }
  holders_.erase(found);
  if (holders_.empty()) awaits_ledger_ = false;
}

void Tenancy::Leave(uint32_t slot) {
  if (holders_.erase(slot) == 0) return;
  ledger::ClearWork(*ledger_, *limits_, slot, ledger::MonotonicNs());
  WakeWaiters();
}

// The dead wake nobody, and who waits for the end of their work sleeps until it was predicted. The sequence moves too:
// somebody may have looked just before.
void Tenancy::WakeWaiters() {
  for (uint32_t i = 0; i < limits_->gpu_count && i < ledger::kMaxGpus; ++i) {
    const uint32_t waiters = ledger::Relieved({limits_, ledger_, i, 0}, ledger::MonotonicNs());
    if (waiters == 0) continue;
    limits_->gpu[i].window_sequence.fetch_add(1);
    ledger::FutexWake(limits_->gpu[i].window_sequence, static_cast<int>(waiters));
  }
}

void Tenancy::ClearLeft(uint32_t slot) { ledger::ClearSlot(*ledger_, *limits_, slot, ledger::MonotonicNs()); }

void Tenancy::End() {
  limits_->ended.store(1);
  for (uint32_t i = 0; i < limits_->gpu_count && i < ledger::kMaxGpus; ++i) {
    limits_->gpu[i].window_sequence.fetch_add(1);
    ledger::FutexWake(limits_->gpu[i].window_sequence, INT_MAX);
  }
}

}  // namespace mete::share
