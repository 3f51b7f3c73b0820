// Device memory for the tests: a few allocations at fixed addresses. Not thread-safe.
#ifndef METE_EMULATOR_PTX_TEST_MEMORY_H_
#define METE_EMULATOR_PTX_TEST_MEMORY_H_

#include <cstring>
#include <map>
#include <vector>

#include "emulator/ptx/ptx.h"

namespace mete::emulator::ptx {

class TestMemory : public Memory {
 public:
  // Allocations lie 1 GiB apart and begin at multiples of 512.
  template <typename T>
  uint64_t Put(const std::vector<T>& values) {
    const uint64_t address = next_;
    next_ += uint64_t{1} << 30;
    std::vector<uint8_t>& bytes = allocations_[address];
    bytes.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return address;
  }
  template <typename T>
  std::vector<T> Get(uint64_t address) const {
    const std::vector<uint8_t>& bytes = allocations_.at(address);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  uint8_t* Translate(uint64_t address, size_t size, bool) override {
    ++translations;
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return nullptr;
    --it;
    const uint64_t offset = address - it->first;
    if (offset > it->second.size() || it->second.size() - offset < size) return nullptr;
    return it->second.data() + offset;
  }
  uint64_t translations = 0;

 private:
  std::map<uint64_t, std::vector<uint8_t>> allocations_;
  uint64_t next_ = 0x7f00'0000'0000;
};

// Places the module's variables as the host of a real module does.
inline void PlaceGlobals(Module* module, TestMemory* memory) {
  std::vector<uint64_t> addresses;
  for (size_t i = 0; i < module->globals().size(); ++i) {
    const Global& g = module->globals()[i];
    std::vector<uint8_t> bytes = g.initial;
    bytes.resize(g.size);
    addresses.push_back(memory->Put(bytes));
    module->Place(i, addresses.back());
  }
  for (size_t i = 0; i < module->globals().size(); ++i) {
    for (const auto& [offset, name] : module->globals()[i].address_of) {
      for (size_t other = 0; other < module->globals().size(); ++other) {
        if (module->globals()[other].name != name) continue;
        uint64_t value;
        uint8_t* at = memory->Translate(addresses[i] + offset, sizeof value, true);
        std::memcpy(&value, at, sizeof value);
        value += addresses[other];
        std::memcpy(at, &value, sizeof value);
      }
    }
  }
}

// A kernel's parameters, one after the other with their natural alignment.
class Parameters {
 public:
  template <typename T>
  Parameters& Add(T value) {
    bytes_.resize((bytes_.size() + sizeof value - 1) / sizeof value * sizeof value);
    const uint8_t* from = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof value);
    return *this;
  }
  const uint8_t* data() const { return bytes_.data(); }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_TEST_MEMORY_H_
