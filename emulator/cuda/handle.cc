// The list of handles: an open hash table of addresses, replaced by a larger one when it is half full. Readers may
// still be in the old table, so it stays; whatever they look for was listed before they could know it.
#include "emulator/cuda/handle.h"

#include <memory>

namespace mete::emulator::cuda {
namespace {

constexpr uintptr_t kFree = 0, kGone = 1;

struct Table {
  Table(size_t n, const Table* before) : size(n), smaller(before), slots(new std::atomic<uintptr_t>[n]()) {}
  const size_t size;           // a power of two
  const Table* const smaller;  // the one that it replaced, for good
  const std::unique_ptr<std::atomic<uintptr_t>[]> slots;
};

constinit std::atomic<Table*> g_table{nullptr};
constinit std::mutex g_mutex;  // of writers
size_t g_taken = 0;            // slots that are not free, in the current table

size_t Start(const Table& table, uintptr_t address) {
  return (address >> 4) * 0x9e3779b97f4a7c15ull >> 20 & (table.size - 1);
}

// The slot of the address, or the free one where the search ended. `gone`: the first slot on the way that was given up.
std::atomic<uintptr_t>& Find(const Table& table, uintptr_t address, std::atomic<uintptr_t>** gone = nullptr) {
  for (size_t at = Start(table, address);; at = (at + 1) & (table.size - 1)) {
    const uintptr_t found = table.slots[at].load(std::memory_order_acquire);
    if (found == address || found == kFree) return table.slots[at];
    if (found == kGone && gone != nullptr && *gone == nullptr) *gone = &table.slots[at];
  }
}

}  // namespace

void ListHandle(const void* object) {
  const auto address = reinterpret_cast<uintptr_t>(object);
  std::lock_guard lock(g_mutex);
  Table* table = g_table.load(std::memory_order_relaxed);
  if (table == nullptr || g_taken * 2 >= table->size) {
    auto* larger = new Table(table == nullptr ? 4096 : table->size * 2, table);
    g_taken = 0;
    for (size_t i = 0; table != nullptr && i < table->size; ++i) {
      const uintptr_t known = table->slots[i].load(std::memory_order_relaxed);
      if (known <= kGone) continue;
      Find(*larger, known).store(known, std::memory_order_relaxed);
      ++g_taken;
    }
    g_table.store(larger, std::memory_order_release);
    table = larger;
  }
  std::atomic<uintptr_t>* gone = nullptr;
  std::atomic<uintptr_t>& slot = Find(*table, address, &gone);
  if (slot.load(std::memory_order_relaxed) == address) return;
  if (gone == nullptr) ++g_taken;  // else a place is used again: handles that come and go need no larger table
  (gone != nullptr ? *gone : slot).store(address, std::memory_order_release);
}

void UnlistHandle(const void* object) {
  std::lock_guard lock(g_mutex);
  Table* table = g_table.load(std::memory_order_relaxed);
  if (table == nullptr) return;
  std::atomic<uintptr_t>& slot = Find(*table, reinterpret_cast<uintptr_t>(object));
  if (slot.load(std::memory_order_relaxed) != kFree) slot.store(kGone, std::memory_order_release);
}

bool IsListedHandle(const void* object) {
  const auto address = reinterpret_cast<uintptr_t>(object);
  Table* table = g_table.load(std::memory_order_acquire);
  return address > kGone && table != nullptr && Find(*table, address).load(std::memory_order_acquire) == address;
}

}  // namespace mete::emulator::cuda
