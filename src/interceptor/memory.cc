#include "interceptor/memory.h"

#include "interceptor/deferred.h"
#include "interceptor/process.h"
#include "ledger/account.h"

namespace mete::interceptor {
namespace {

constexpr uint32_t kLookAfterEvery = 8;  // reservations of a thread: reading the clock costs as much as the rest

// A small block reaches into at most one granule more than its first; 0: it does not.
uint64_t SecondGranule(uint64_t address, const Block& block) {
  if (block.kind != Block::kSmall || block.bytes == 0) return 0;
  const uint64_t last = (address + block.bytes - 1) / kGranule;
  return last == address / kGranule ? 0 : last;
}

// `granules`: that a small block was the first in, or the last; that the pile grew or shrank by.
uint64_t ChargeOf(const Block& block, uint64_t granules) {
  switch (block.kind) {
    case Block::kLarge: return block.bytes;
    case Block::kObject: return block.bytes + granules * kGranule;
    case Block::kSmall: return granules * kGranule;
    case Block::kPool: return 0;  // the pool is charged
  }
  return 0;
}

}  // namespace

bool ReserveOrReclaim(Process& p, const ledger::View& view, uint64_t bytes) {
  thread_local constinit __attribute__((tls_model("initial-exec"))) uint32_t calls = 0;
  if (++calls % kLookAfterEvery == 0 && HeartbeatStale(p)) KeepAttached(p);
  if (view.limits->ended.load(std::memory_order_relaxed) != 0) return false;
  if (ledger::Reserve(view, bytes)) return true;
  const bool pools = p.pools.Refresh(p), graphs = p.graphs.Refresh(p);
  if ((pools || graphs) && ledger::Reserve(view, bytes)) return true;
  // What was given up, here or by a process that has died, may be free: the broker can find out.
  return AuditMayHelp(view, bytes) && AwaitAudit(p) && ledger::Reserve(view, bytes);
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

CUresult Memory::BeginObject(Process& p, const Extent& extent, Ticket* ticket) {
  return Reserve(p, extent.Most(), ticket);
}

[[gnu::always_inline]] inline bool Memory::Enter(Shard& shard, uint64_t granule, uint64_t hash) {
  bool fresh = true;
  uint32_t* blocks = shard.granules.Put(granule + 1, hash, &fresh);
  if (blocks != nullptr) ++*blocks;
  return fresh;  // not remembered: charged for good rather than too little
}

[[gnu::always_inline]] inline bool Memory::Leave(Shard& shard, uint64_t granule, uint64_t hash) {
  uint32_t* blocks = shard.granules.Find(granule + 1, hash);
  if (blocks == nullptr || --*blocks != 0) return false;
  shard.granules.Erase(blocks);
  return true;
}

// In line everywhere, so that a block is made where it stays: a copy read in other pieces than it was written in waits
// for the store buffer.
[[gnu::always_inline]] inline bool Memory::Put(uint64_t address, const Block& block, uint64_t* charged) {
  const uint64_t granule = address / kGranule, hash = HashOfGranule(granule);
  Shard& shard = ShardOf(hash);
  uint64_t first = 0;
  *charged = 0;
  {
    std::lock_guard lock(shard.lock);
    bool fresh;
    Block* cell = shard.blocks.Put(address, HashOf(address), &fresh);
    if (cell == nullptr) return false;
    *cell = block;
    if (block.kind == Block::kSmall) first = Enter(shard, granule, hash);
  }
  if (block.kind == Block::kObject && block.small != 0) first = Pile(block.context, block.small, true);
  if (const uint64_t second = SecondGranule(address, block)) {
    const uint64_t second_hash = HashOfGranule(second);
    Shard& other = ShardOf(second_hash);
    std::lock_guard lock(other.lock);
    first += Enter(other, second, second_hash);
  }
  *charged = ChargeOf(block, first);
  return true;
}

// Settles the difference between what was reserved and what the block takes.
[[gnu::always_inline]] inline bool Memory::End(const Ticket& ticket, uint64_t address, const Block& block) {
  uint64_t held = 0;
  const bool remembered = Put(address, block, &held);
  if (held < ticket.reserved) ledger::Return(ticket.view, ticket.reserved - held);
  if (held > ticket.reserved) ledger::Charge(ticket.view, held - ticket.reserved);
  return remembered;
}

void Memory::Cancel(const Ticket& ticket) {
  if (ticket.charged) ledger::Return(ticket.view, ticket.reserved);
}

bool Memory::EndLinear(const Ticket& ticket, uint64_t address, uint64_t bytes) {
  if (!ticket.charged || address == 0) return true;
  const bool small = bytes < kSmallBelow;
  const Block block{ticket.context,
                    {},
                    small ? bytes : RoundUp(bytes, kGranule),
                    ticket.view.gpu,
                    small ? Block::kSmall : Block::kLarge,
                    false};
  return End(ticket, address, block);
}

bool Memory::EndObject(const Ticket& ticket, uint64_t key, const Extent& extent) {
  if (!ticket.charged) return true;
  Block block{ticket.context, {}, extent.large, ticket.view.gpu, Block::kObject, false};
  block.small = extent.small;
  return End(ticket, key, block);
}

bool Memory::EndPooled(uint64_t address, const Block& block) {
  uint64_t charged;
  return Put(address, block, &charged);
}

bool Memory::Take(uint64_t address, Taken* taken) {
  const uint64_t granule = address / kGranule, hash = HashOfGranule(granule);
  Shard& shard = ShardOf(hash);
  uint64_t last = 0;
  {
    std::lock_guard lock(shard.lock);
    Block* found = shard.blocks.Find(address, HashOf(address));
    if (found == nullptr) return false;
    taken->block = *found;
    shard.blocks.Erase(found);
    if (taken->block.kind == Block::kSmall) last = Leave(shard, granule, hash);
  }
  if (const uint64_t second = SecondGranule(address, taken->block)) {
    const uint64_t second_hash = HashOfGranule(second);
    Shard& other = ShardOf(second_hash);
    std::lock_guard lock(other.lock);
    last += Leave(other, second, second_hash);
  }
  const bool object = taken->block.kind == Block::kObject;
  if (object && taken->block.small != 0) last = Pile(taken->block.context, taken->block.small, false);
  taken->charged = ChargeOf(taken->block, last);
  taken->deferred = taken->block.exported ? taken->charged : object ? last * kGranule : 0;
  return true;
}

// Others may have come into its granules, or left them, meanwhile.
void Memory::Restore(Process& p, uint64_t address, const Taken& taken) {
  const ledger::View view = ViewOf(p, taken.block.gpu);
  uint64_t charged = 0;
  if (!Put(address, taken.block, &charged)) return;  // no memory: charged for good rather than too little
  if (charged < taken.charged) ledger::Return(view, taken.charged - charged);
  if (charged > taken.charged) ledger::Charge(view, charged - taken.charged);
}

void Memory::Settle(Process& p, const Taken& taken) {
  if (taken.block.kind == Block::kPool) {
    p.pools.Freed(p, taken.block.pool, taken.block.bytes);
    return;
  }
  if (taken.deferred < taken.charged) ledger::Return(ViewOf(p, taken.block.gpu), taken.charged - taken.deferred);
  GiveUp(p, taken.block.gpu, taken.deferred);
}

void Memory::Export(Process& p, uint64_t address) {
  Shard& shard = ShardOf(HashOfGranule(address / kGranule));
  std::lock_guard lock(shard.lock);
  Block* found = shard.blocks.Find(address, HashOf(address));
  if (found == nullptr) return;
  found->exported = true;
  ledger::MarkExported(ViewOf(p, found->gpu));
}

uint64_t Memory::Pile(CUcontext context, uint64_t bytes, bool raise) {
  const auto key = reinterpret_cast<uint64_t>(context) | 1;
  std::lock_guard lock(piles_lock_);
  bool fresh;
  uint64_t* pile = piles_.Put(key, HashOf(key), &fresh);
  if (pile == nullptr)
    return raise ? RoundUp(bytes, kGranule) / kGranule : 0;  // no memory: too much rather than too little
  const uint64_t before = RoundUp(*pile, kGranule) / kGranule;
  *pile = raise ? *pile + bytes : *pile - (bytes < *pile ? bytes : *pile);
  const uint64_t after = RoundUp(*pile, kGranule) / kGranule;
  if (*pile == 0) piles_.Erase(pile);
  return raise ? after - before : before - after;
}

void Memory::Forget(Process& p, CUcontext context) {
  std::lock_guard one_at_a_time(forgetting_);
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.lock);
    shard.blocks.TakeAll([&](const Block& block) { return block.context == context && block.kind != Block::kPool; },
                         [&](uint64_t key, const Block& block) {
                           uint64_t last = 0;
                           if (block.kind == Block::kObject) last = Pile(context, block.small, false);
                           if (block.kind == Block::kSmall)
                             last = Leave(shard, key / kGranule, HashOfGranule(key / kGranule));
                           if (const uint64_t second = SecondGranule(key, block)) {
                             const uint64_t second_hash = HashOfGranule(second);
                             Shard& other = ShardOf(second_hash);
                             if (&other != &shard) other.lock.lock();
                             last += Leave(other, second, second_hash);
                             if (&other != &shard) other.lock.unlock();
                           }
                           const uint64_t charged = ChargeOf(block, last);
                           Settle(p, {block, charged, block.exported ? charged : 0});
                         });
  }
}

size_t Memory::Size() {
  size_t size = 0;
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.lock);
    size += shard.blocks.Size();
  }
  return size;
}

}  // namespace mete::interceptor
