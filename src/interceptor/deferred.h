// Memory that this process has given up but that the driver may still hold: memory that was exported lives on while
// another process holds it, and what is freed in small pieces may leave others scattered over as many granules. It
// stays charged until an audit by the broker has begun and ended; whatever of it is still there is by then charged as
// overhead to whoever holds it, and the broker gives the rest back (ledger/account.h, Defer).
//
// Thread-safe. Bytes.
#ifndef METE_INTERCEPTOR_DEFERRED_H_
#define METE_INTERCEPTOR_DEFERRED_H_

#include <cstdint>

#include "ledger/layout.h"

namespace mete::interceptor {

struct Process;

void GiveUp(Process& p, uint32_t gpu, uint64_t bytes);

// Could `bytes` fit once an audit has found out what of the share's memory is really there?
bool AuditMayHelp(const ledger::View& view, uint64_t bytes);

// Asks for an audit and waits until it has ended, at most half a second. False: there was none.
bool AwaitAudit(Process& p);

// Asks for one and does not wait: for memory that only an audit can find.
void AskForAuditSoon();

}  // namespace mete::interceptor

#endif  // METE_INTERCEPTOR_DEFERRED_H_
