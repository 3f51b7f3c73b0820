// Any command line is refused with an exit status and a reason, or answered.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "emulator/smi/command.h"

namespace {

class EmptyNode : public mete::emulator::smi::SmiSource {
 public:
  using Exit = mete::emulator::smi::Exit;
  Exit Read(unsigned, mete::emulator::smi::SmiSnapshot* snapshot, std::string*) override {
    snapshot->gpus.resize(2);
    return mete::emulator::smi::kOk;
  }
  Exit Set(uint32_t, mete::emulator::smi::SmiSetting, uint64_t, std::string*) override {
    return mete::emulator::smi::kOk;
  }
  Exit ReadTopology(size_t, mete::emulator::smi::SmiTopology*, std::string*) override {
    return mete::emulator::smi::kOk;
  }
  bool emulated() const override { return true; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(data[i]);
    }
  }
  mete::emulator::smi::Request request;
  std::string message, text;
  EmptyNode node;
  mete::emulator::smi::Exit code = ParseRequest(words, &request, &message);
  if (code == mete::emulator::smi::kOk) code = Answer(request, &node, &text, &message);
  if (code != mete::emulator::smi::kOk && message.empty()) abort();
  return 0;
}
