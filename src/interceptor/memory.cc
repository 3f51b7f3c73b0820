#include "interceptor/memory.h"

#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {
namespace {

uint64_t GranuleKey(uint32_t gpu, uint64_t number) { return (uint64_t{gpu} + 1) << 58 | number; }

}  // namespace

bool ReserveOrReclaim(Process& p, const ledger::View& view, uint64_t bytes) {
  if (HeartbeatStale(p)) KeepAttached(p);
  if (view.limits->ended.load(std::memory_order_relaxed) != 0) return false;
  if (ledger::Reserve(view, bytes)) return true;
  return p.pools.Refresh(p) && ledger::Reserve(view, bytes);
}

CUresult Memory::Reserve(Process& p, uint64_t bytes, Ticket* ticket) {
  Place place;
  if (!Locate(p, &place)) return kNotInShare;
  ticket->view = place.view;
  ticket->context = place.context;
  if (place.context == nullptr || bytes == 0) return CUDA_SUCCESS;  // the driver has its own words for that
  if (bytes >= kAbsurd || !ReserveOrReclaim(p, place.view, bytes)) return kOutOfMemory;
  ticket->reserved = bytes;
  ticket->charged = true;
  return CUDA_SUCCESS;
}

CUresult Memory::Begin(Process& p, uint64_t bytes, Ticket* ticket) {
  return Reserve(p, bytes >= kAbsurd ? bytes : RoundUp(bytes, kGranule), ticket);
}

CUresult Memory::BeginExact(Process& p, uint64_t bytes, Ticket* ticket) { return Reserve(p, bytes, ticket); }

void Memory::Cancel(const Ticket& ticket) {
  if (ticket.charged) ledger::Return(ticket.view, ticket.reserved);
}

bool Memory::EndLinear(const Ticket& ticket, uint64_t address, uint64_t bytes) {
  if (!ticket.charged || address == 0) return true;
  const bool small = bytes < kSmallBelow;
  const uint32_t gpu = ticket.view.gpu;
  const uint64_t held = small ? Enter(gpu, address, bytes) * kGranule : RoundUp(bytes, kGranule);
  if (held < ticket.reserved) ledger::Return(ticket.view, ticket.reserved - held);
  if (held > ticket.reserved) ledger::Charge(ticket.view, held - ticket.reserved);
  const Block block{small ? bytes : held, ticket.context, nullptr, gpu, small ? Block::kSmall : Block::kLarge};
  if (Remember(address, block)) return true;
  ledger::Return(ticket.view, small ? Leave(gpu, address, bytes) * kGranule : held);
  return false;
}

bool Memory::EndArray(const Ticket& ticket, const void* handle, uint64_t bytes) {
  if (!ticket.charged || handle == nullptr) return true;
  if (bytes < ticket.reserved) ledger::Return(ticket.view, ticket.reserved - bytes);
  if (bytes > ticket.reserved) ledger::Charge(ticket.view, bytes - ticket.reserved);
  if (Remember(KeyOf(handle), {bytes, ticket.context, nullptr, ticket.view.gpu, Block::kArray})) return true;
  ledger::Return(ticket.view, bytes);
  return false;
}

void Memory::Settle(Process& p, uint64_t address, const Block& block) {
  const ledger::View view = ViewOf(p, block.gpu);
  switch (block.kind) {
    case Block::kLarge:
    case Block::kArray: ledger::Return(view, block.bytes); break;
    case Block::kSmall:
      if (const uint32_t last = Leave(block.gpu, address, block.bytes)) ledger::Return(view, last * kGranule);
      break;
    case Block::kPool: p.pools.Freed(p, block.pool, block.bytes); break;
  }
}

void Memory::Forget(Process& p, CUcontext context) {
  blocks_.TakeAll([&](const Block& block) { return block.context == context && block.kind != Block::kPool; },
                  [&](uint64_t key, const Block& block) { Settle(p, key, block); });
}

uint32_t Memory::Enter(uint32_t gpu, uint64_t address, uint64_t bytes) {
  uint32_t first = 0;
  const uint64_t last_granule = (address + bytes - 1) / kGranule;
  for (uint64_t granule = address / kGranule; granule <= last_granule; ++granule) {
    const bool known = granules_.Update(GranuleKey(gpu, granule), [&](uint32_t& blocks, bool fresh) {
      first += fresh;
      ++blocks;
      return true;
    });
    first += !known;  // not remembered: charged for good rather than too little
  }
  return first;
}

uint32_t Memory::Leave(uint32_t gpu, uint64_t address, uint64_t bytes) {
  uint32_t last = 0;
  const uint64_t last_granule = (address + bytes - 1) / kGranule;
  for (uint64_t granule = address / kGranule; granule <= last_granule; ++granule) {
    granules_.Update(GranuleKey(gpu, granule), [&](uint32_t& blocks, bool fresh) {
      if (fresh) return false;
      last += blocks == 1;
      return --blocks != 0;
    });
  }
  return last;
}

}  // namespace mete::interceptor
