// Any command line is refused with an exit status and a reason, or answered.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "emulator/smi/command.h"

namespace {

using mete::emulator::smi::Exit;

// A GPU with one GPU instance, which takes whatever it is asked to.
class OneInstance : public mete::emulator::smi::MigSource {
 public:
  Exit ReadMig(uint32_t, bool, mete::emulator::smi::MigNode* node, std::string*) override {
    node->profiles.resize(1);
    node->profiles[0].name = "3g.20gb";
    node->profiles[0].id = 9;
    node->profiles[0].starts = {0, 4};
    node->gpu_instances.resize(1);
    node->gpu_instances[0].id = 1;
    node->gpu_instances[0].profile = 9;
    node->gpu_instances[0].compute_profiles = node->profiles;
    node->gpu_instances[0].compute_instances.resize(1);
    return mete::emulator::smi::kOk;
  }
  Exit CreateGpuInstance(uint32_t, uint32_t, std::optional<uint32_t>, uint32_t* id, std::string*) override {
    *id = 1;
    return mete::emulator::smi::kOk;
  }
  Exit DestroyGpuInstance(uint32_t, uint32_t, std::string*) override { return mete::emulator::smi::kOk; }
  Exit CreateComputeInstance(uint32_t, uint32_t, uint32_t, std::optional<uint32_t>, uint32_t* id,
                             std::string*) override {
    *id = 0;
    return mete::emulator::smi::kOk;
  }
  Exit DestroyComputeInstance(uint32_t, uint32_t, uint32_t, std::string*) override { return mete::emulator::smi::kOk; }
  Exit SetMigMode(uint32_t gpu, bool, std::string* pending, std::string*) override {
    if (gpu == 0) *pending = "In use by another client";
    return mete::emulator::smi::kOk;
  }
};

class EmptyNode : public mete::emulator::smi::SmiSource {
 public:
  Exit Read(unsigned, mete::emulator::smi::SmiSnapshot* snapshot, std::string*) override {
    snapshot->gpus.resize(2);
    snapshot->gpus[0].mig = 1;
    snapshot->gpus[0].mig_devices.resize(2);
    return mete::emulator::smi::kOk;
  }
  mete::emulator::smi::MigSource* mig() override { return &instances_; }
  Exit Set(uint32_t, mete::emulator::smi::SmiSetting, uint64_t, std::string*) override {
    return mete::emulator::smi::kOk;
  }
  Exit ReadTopology(size_t, mete::emulator::smi::SmiTopology*, std::string*) override {
    return mete::emulator::smi::kOk;
  }
  bool emulated() const override { return true; }

 private:
  OneInstance instances_;
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
  Exit code = ParseRequest(words, &request, &message);
  if (code == mete::emulator::smi::kOk) code = Answer(request, &node, &text, &message);
  if (code != mete::emulator::smi::kOk && message.empty()) abort();
  return 0;
}
