// The processes of one share in force: its two pages, its doorbell, and who holds which slot. The broker's side of
// ledger/messages.h.
//
// After the broker was restarted the ledger lives only in the tenants: it is taken back from one of them (its
// descriptor is looked up, or handed over with a ReattachRequest) and until then no new process is admitted, since what
// the others hold could not be counted. Limits always come from a page of this broker's own.
//
// Ownership: owns pages and descriptors. Thread rule: the broker's thread; Windows read the pages at the same time.
#ifndef METE_SHARE_TENANCY_H_
#define METE_SHARE_TENANCY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "ledger/layout.h"
#include "plan/values.h"
#include "share/book.h"
#include "share/process.h"

namespace mete::share {

class Tenancy {
 public:
  struct Holder {
    uint32_t slot = 0;
    uint32_t generation = 0;
    ProcessId process;
    std::string program;
    Fd pidfd;
  };

  // New pages for a grant. `context_bytes` per GPU in the grant's order. `before`: slots the book knows from an earlier
  // broker whose processes are alive.
  static StatusOr<std::unique_ptr<Tenancy>> Make(const plan::Grant& grant, const std::vector<uint64_t>& context_bytes,
                                                 const std::vector<SlotRow>& before);
  ~Tenancy();

  ledger::LimitsPage& limits() { return *limits_; }
  ledger::LedgerPage& ledger() { return *ledger_; }
  int limits_fd() const { return limits_fd_.get(); }
  int ledger_fd() const { return ledger_fd_.get(); }
  int doorbell() const { return doorbell_.get(); }
  const std::map<uint32_t, Holder>& holders() const { return holders_; }

  // True while the ledger of an earlier broker's tenants has not been found.
  bool awaits_ledger() const { return awaits_ledger_; }
  // Would this descriptor be a ledger to take over (valid, of this share's size, and not the present one)?
  bool Adoptable(int fd) const;
  // Takes it over: clears slots that the book does not know. Nobody may use ledger() across this call.
  Status Adopt(int fd);
  // The present ledger (by identity of the memory behind the descriptor)?
  bool IsLedger(int fd) const;

  // Takes a slot for the process; one that the same process held before is cleared: it has called exec.
  // Refused when none is free. The pidfd passes to the holder.
  StatusOr<const Holder*> Attach(Peer peer, const std::string& program);
  // Finds a process that held its slot before the broker restarted.
  const Holder* Find(uint32_t slot, uint32_t generation, const ProcessId& process) const;
  const Holder* Find(const ProcessId& process) const;
  // The process has ended or called exec: clears what it held, and wakes who waits for the end of its work.
  void Clear(uint32_t slot);
  // The same, but its slot stays taken and its memory charged, since others may hold what it made. Then ClearLeft.
  void Leave(uint32_t slot);
  void ClearLeft(uint32_t slot);

  // The share is released: tenants launch and allocate no more.
  void End();

 private:
  Tenancy() = default;
  void WakeWaiters();

  ledger::LimitsPage* limits_ = nullptr;
  ledger::LedgerPage* ledger_ = nullptr;
  Fd limits_fd_, ledger_fd_, doorbell_;
  bool awaits_ledger_ = false;
  uint32_t next_generation_ = 1;
  std::map<uint32_t, Holder> holders_;  // by slot
};

// The sixteen bytes of a share's id or a GPU's or MIG device's UUID ("GPU-…", "MIG-…"), for the pages; zeros when it
// has no such form.
void ToBytes(const std::string& text, uint8_t (&bytes)[16]);

}  // namespace mete::share

#endif  // METE_SHARE_TENANCY_H_
