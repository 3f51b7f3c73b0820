// Physical memory that may outlive the context it was made under, and its maker: mappable memory, and memory that was
// shared with other processes. It is there as long as a process holds it (a handle, a mapping, an import), or a
// descriptor of it is open somewhere, with which it could still be imported. It is charged once: to its maker while
// that holds it, then to the one of the others that has held it longest; to nobody while only a descriptor is left.
//
// A plain value, no I/O of its own. Not thread-safe. Errors: an empty result, and nothing has changed. Units: bytes.
#ifndef METE_EMULATOR_ENGINE_PHYSICAL_H_
#define METE_EMULATOR_ENGINE_PHYSICAL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace mete::emulator {

class PhysicalMemory {
 public:
  using Holder = uint64_t;  // a session; 0: nobody
  // Whether somebody still has a descriptor of it open.
  using StillOpen = std::function<bool()>;

  // Smaller ones are not made, so that a GPU's memory bounds their number.
  static constexpr uint64_t kLeastBytes = 1 << 21;

  // What a call did to the accounts.
  struct Change {
    uint32_t gpu = 0;
    uint64_t bytes = 0;
    Holder from = 0, to = 0;
    bool gone = false;  // the memory is free
    uint64_t tag = 0;   // what Make was told
  };

  // A name that only those know who were told. `tag`: the caller's own.
  uint64_t Make(uint32_t gpu, uint64_t bytes, Holder maker, uint64_t tag);
  // Once more; each is to be dropped.
  std::optional<Change> Hold(uint64_t name, Holder holder);
  std::optional<Change> Drop(uint64_t name, Holder holder);
  // Only who holds it may give it away. False: it does not.
  bool Export(uint64_t name, Holder holder, StillOpen open);
  // Everything that it holds: it has died.
  std::vector<Change> DropAll(Holder holder);
  // Frees what nobody holds and whose descriptors are all closed.
  std::vector<Change> Sweep();

 private:
  struct Share {
    Holder holder;
    uint32_t count;
  };
  struct Memory {
    uint32_t gpu;
    uint64_t bytes, tag;
    std::vector<Share> holders;  // the maker first, then as they came; the first is charged
    StillOpen open;              // empty: never exported
  };
  using Map = std::unordered_map<uint64_t, Memory>;
  static Holder Charged(const Memory& memory) { return memory.holders.empty() ? 0 : memory.holders.front().holder; }
  // After holders went; the iterator may be invalid then.
  Change Settle(Map::iterator at, Holder before);

  Map map_;                     // by name
  std::set<uint64_t> orphans_;  // names of those that only a descriptor keeps
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_PHYSICAL_H_
