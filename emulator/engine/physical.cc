#include "emulator/engine/physical.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

namespace mete::emulator {

uint64_t PhysicalMemory::Make(uint32_t gpu, uint64_t bytes, Holder maker, uint64_t tag) {
  uint64_t name = 0;
  while (name == 0 || map_.contains(name)) {
    if (getrandom(&name, sizeof(name), 0) != sizeof(name)) name = map_.size() + 1;  // of an early boot: only not secret
    while (map_.contains(name)) ++name;
  }
  map_.emplace(name, Memory{gpu, bytes, tag, {{maker, 1}}, {}});
  return name;
}

std::optional<PhysicalMemory::Change> PhysicalMemory::Hold(uint64_t name, Holder holder) {
  const auto at = map_.find(name);
  if (at == map_.end()) return std::nullopt;
  Memory& memory = at->second;
  if (orphans_.contains(name) && !memory.open()) return std::nullopt;  // free, only not swept yet
  const Holder before = Charged(memory);
  const auto share = std::find_if(memory.holders.begin(), memory.holders.end(),
                                  [&](const Share& other) { return other.holder == holder; });
  if (share == memory.holders.end()) {
    memory.holders.push_back({holder, 1});
  } else {
    if (share->count == UINT32_MAX) return std::nullopt;
    ++share->count;
  }
  orphans_.erase(name);
  return Change{memory.gpu, memory.bytes, before, Charged(memory), false, memory.tag};
}

std::optional<PhysicalMemory::Change> PhysicalMemory::Drop(uint64_t name, Holder holder) {
  const auto at = map_.find(name);
  if (at == map_.end()) return std::nullopt;
  Memory& memory = at->second;
  const Holder before = Charged(memory);
  const auto share = std::find_if(memory.holders.begin(), memory.holders.end(),
                                  [&](const Share& other) { return other.holder == holder; });
  if (share == memory.holders.end()) return std::nullopt;
  if (--share->count == 0) memory.holders.erase(share);
  return Settle(at, before);
}

PhysicalMemory::Change PhysicalMemory::Settle(Map::iterator at, Holder before) {
  const Memory& memory = at->second;
  Change change = {memory.gpu, memory.bytes, before, Charged(memory), false, memory.tag};
  if (!memory.holders.empty()) return change;
  change.gone = !memory.open || !memory.open();
  if (change.gone) {
    map_.erase(at);
  } else {
    orphans_.insert(at->first);
  }
  return change;
}

bool PhysicalMemory::Export(uint64_t name, Holder holder, StillOpen open) {
  const auto at = map_.find(name);
  if (at == map_.end()) return false;
  const std::vector<Share>& holders = at->second.holders;
  if (std::none_of(holders.begin(), holders.end(), [&](const Share& share) { return share.holder == holder; }))
    return false;
  if (!at->second.open) at->second.open = std::move(open);  // one tells of all descriptors
  return true;
}

std::vector<PhysicalMemory::Change> PhysicalMemory::DropAll(Holder holder) {
  std::vector<Change> changes;
  for (auto at = map_.begin(); at != map_.end();) {
    const auto next = std::next(at);
    const Holder before = Charged(at->second);
    if (std::erase_if(at->second.holders, [&](const Share& share) { return share.holder == holder; }) != 0)
      changes.push_back(Settle(at, before));
    at = next;
  }
  return changes;
}

std::vector<PhysicalMemory::Change> PhysicalMemory::Sweep() {
  std::vector<Change> changes;
  for (auto at = orphans_.begin(); at != orphans_.end();) {
    const auto memory = map_.find(*at);
    if (memory->second.open()) {
      ++at;
      continue;
    }
    changes.push_back({memory->second.gpu, memory->second.bytes, 0, 0, true, memory->second.tag});
    map_.erase(memory);
    at = orphans_.erase(at);
  }
  return changes;
}

}  // namespace mete::emulator
