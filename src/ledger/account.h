// Memory of a share on one GPU: reserve, call the driver, then adjust or give back.
//
//   if (!Reserve(view, size)) return CUDA_ERROR_OUT_OF_MEMORY;
//   if (real_alloc(&p, size) != 0) Return(view, size);
//   …
//   real_free(p); Return(view, size);
//
// What a share holds is the sum of its slots, always computed from them: there is no total that could drift. A slot has
// two words: what its process charged for itself, and, written by the broker, what the driver says that it holds beyond
// that (contexts larger than their estimate, code, heaps, memory whose maker is gone). A slot's own
// word is raised before the driver call, so a crash at any point leaves too much charged, never too little, and the
// broker clears the slot of a dead process. All functions are wait-free but for Reserve's bounded retries, thread-safe,
// and callable from several processes at once. libc only.
#ifndef METE_LEDGER_ACCOUNT_H_
#define METE_LEDGER_ACCOUNT_H_

#include <cstdint>

#include "ledger/layout.h"

namespace mete::ledger {

// Charges `bytes` to the caller's slot if the share then holds no more than its quota. False: refused and counted in
// `denials`; nothing is charged. Two reservations that together exceed the quota never both succeed.
bool Reserve(const View& view, uint64_t bytes);

// Charges without asking (what the driver has already given, for example a context). May exceed the quota.
void Charge(const View& view, uint64_t bytes);

// Gives back; saturates at zero.
void Return(const View& view, uint64_t bytes);

// Bytes the share holds on this GPU (sum over slots, saturating), what this process charged for itself, and all of it.
uint64_t Used(const View& view);
uint64_t UsedBySlot(const View& view);
uint64_t HeldBySlot(const LedgerPage& ledger, uint32_t gpu, uint32_t slot);

// The broker's: what the slot's process holds beyond what it charged.
void SetOverhead(LedgerPage& ledger, uint32_t gpu, uint32_t slot, uint64_t bytes);

// Memory that the process has given up but that the driver may still hold (others have it too, or what is left lies
// scattered) stays charged as deferred until an audit has found what of it is still there: that then is overhead, and
// the broker returns what had been deferred when the audit began.
void Defer(const View& view, uint64_t bytes);
void ReturnDeferred(const View& view, uint64_t bytes);
// What all processes of the share believe to hold: without what was deferred, and what only the driver knows of.
uint64_t Believed(const View& view);
// What the slot's process charges for what it believes to hold: without what it deferred.
uint64_t BelievedBySlot(const LedgerPage& ledger, uint32_t gpu, uint32_t slot);

// The process made memory that others may hold when it is gone; and whether the slot's process ever did, on any GPU.
void MarkExported(const View& view);
bool Exported(const LedgerPage& ledger, uint32_t slot);

}  // namespace mete::ledger

#endif  // METE_LEDGER_ACCOUNT_H_
