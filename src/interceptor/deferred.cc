#include "interceptor/deferred.h"

#include <mutex>

#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {
namespace {

constexpr uint64_t kAwaitNs = 500'000'000;

// The count at which an audit has ended that began after now: it is odd while one is under way.
uint32_t DueAfter(uint32_t audits) { return audits + 2 + audits % 2; }
bool Reached(uint32_t audits, uint32_t due) { return static_cast<int32_t>(audits - due) >= 0; }

uint32_t AuditsOf(const Process& p) {
  return p.attachment.load(std::memory_order_acquire)->limits->audits.load(std::memory_order_seq_cst);
}

}  // namespace

void Deferred::Add(Process& p, uint32_t gpu, uint64_t bytes) {
  if (bytes == 0) return;
  std::lock_guard lock(lock_);
  ledger::Defer(ViewOf(p, gpu), bytes);
  const uint32_t due = DueAfter(AuditsOf(p));
  Entry* place = nullptr;
  for (Entry& entry : entries_[gpu]) {
    if (entry.bytes != 0 && entry.due == due) {
      entry.bytes += bytes;
      return;
    }
    if (place == nullptr || entry.bytes == 0) place = &entry;
  }
  if (place->bytes == 0) entries_used_.fetch_add(1, std::memory_order_relaxed);
  *place = {due, place->bytes + bytes};
}

bool Deferred::Settle(Process& p) {
  if (!Any()) return false;
  std::lock_guard lock(lock_);
  const uint32_t audits = AuditsOf(p);
  bool given_back = false;
  for (uint32_t gpu = 0; gpu < ledger::kMaxGpus; ++gpu) {
    for (Entry& entry : entries_[gpu]) {
      if (entry.bytes == 0 || !Reached(audits, entry.due)) continue;
      ledger::ReturnDeferred(ViewOf(p, gpu), entry.bytes);
      entry.bytes = 0;
      entries_used_.fetch_sub(1, std::memory_order_relaxed);
      given_back = true;
    }
  }
  return given_back;
}

bool Deferred::Await(Process& p) {
  const Attachment& attachment = *p.attachment.load(std::memory_order_acquire);
  const std::atomic<uint32_t>& word = attachment.limits->audits;
  uint32_t audits = word.load(std::memory_order_seq_cst);
  const uint32_t due = DueAfter(audits);
  if (!AskForAudit(attachment)) return false;
  for (const uint64_t until = Now() + kAwaitNs; Now() < until;) {
    if (Reached(audits, due)) return true;
    ledger::FutexWaitUntil(word, audits, until);
    audits = word.load(std::memory_order_seq_cst);
  }
  return Reached(audits, due);
}

}  // namespace mete::interceptor
