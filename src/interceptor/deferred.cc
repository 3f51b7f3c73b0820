#include "interceptor/deferred.h"

#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kAwaitNs = 500'000'000;

// The count at which an audit has ended that began after now: it is odd while one is under way.
uint32_t DueAfter(uint32_t audits) { return audits + 2 + audits % 2; }
bool Reached(uint32_t audits, uint32_t due) { return static_cast<int32_t>(audits - due) >= 0; }

}  // namespace

void GiveUp(Process& p, uint32_t gpu, uint64_t bytes) {
  if (bytes != 0) ledger::Defer(ViewOf(p, gpu), bytes);
}

bool AuditMayHelp(const ledger::View& view, uint64_t bytes) {
  const uint64_t quota = view.limits->gpu[view.gpu].memory_quota.load(std::memory_order_relaxed);
  if (bytes > quota) return false;
  if (view.limits->leaving.load(std::memory_order_seq_cst) != 0) return true;
  const uint64_t believed = ledger::Believed(view);
  return believed <= quota - bytes && believed != ledger::Used(view);
}

bool AwaitAudit(Process& p) {
  const Attachment& attachment = *p.attachment.load(std::memory_order_acquire);
  const std::atomic<uint32_t>& word = attachment.limits->audits;
  uint32_t audits = word.load(std::memory_order_seq_cst);
  const uint32_t due = DueAfter(audits);
  if (!AskForAudit(attachment)) return false;
  for (const uint64_t until = Now() + kAwaitNs; !Reached(audits, due) && Now() < until;) {
    ledger::FutexWaitUntil(word, audits, until);
    audits = word.load(std::memory_order_seq_cst);
  }
  return Reached(audits, due);
}

void AskForAuditSoon() {
  Process* p = process.load(std::memory_order_acquire);
  if (p != nullptr) AskForAudit(*p->attachment.load(std::memory_order_acquire));
}

}  // namespace mete::interceptor
