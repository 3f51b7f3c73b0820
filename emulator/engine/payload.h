// The bytes of a reply: plain data, one after another. Pure; any thread.
#ifndef METE_EMULATOR_ENGINE_PAYLOAD_H_
#define METE_EMULATOR_ENGINE_PAYLOAD_H_

#include <cstdint>
#include <cstring>
#include <vector>

namespace mete::emulator {

template <typename T>
void Append(std::vector<uint8_t>& out, const T& value) {
  const size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

template <typename T>
uint32_t AppendAll(std::vector<uint8_t>& out, const std::vector<T>& values) {
  for (const T& value : values) Append(out, value);
  return static_cast<uint32_t>(values.size());
}

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_PAYLOAD_H_
