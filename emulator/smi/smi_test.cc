#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "emulator/smi/command.h"
#include "emulator/smi/table.h"

namespace mete::emulator::smi {
namespace {

using testing::HasSubstr;

class FakeSource : public SmiSource {
 public:
  SmiSnapshot node;
  Exit answer = kOk;
  int mode_set = -1;
  Exit Read(SmiSnapshot* snapshot, std::string* message) override {
    *snapshot = node;
    if (answer != kOk) *message = "broken";
    return answer;
  }
  Exit SetComputeMode(uint32_t, int mode, std::string* message) override {
    mode_set = mode;
    *message = "no permission";
    return kNoPermission;
  }
  bool emulated() const override { return true; }
};

SmiSnapshot Node() {
  SmiSnapshot node;
  node.driver_version = "580.65.06";
  node.cuda_version = 13000;
  SmiGpu a100;
  a100.name = "NVIDIA A100-SXM4-40GB";
  a100.uuid = "GPU-aaaa";
  a100.serial = "1563";
  a100.bus_id = "00000000:07:00.0";
  a100.bus = 7;
  a100.compute_major = 8;
  a100.memory_total = 40960ull << 20;
  a100.memory_used = 512ull << 20;
  a100.memory_free = 40000ull << 20;
  a100.memory_reserved = 448ull << 20;
  a100.utilization_gpu = 37;
  a100.utilization_memory = 5;
  a100.temperature_c = 33;
  a100.power_mw = 48123;
  a100.power_limit_mw = a100.enforced_limit_mw = a100.power_default_mw = 400000;
  a100.pstate = 0;
  a100.compute_mode = 3;
  a100.persistence = 1;
  a100.display_active = 0;
  a100.ecc = 1;
  a100.ecc_errors = 0;
  a100.mig = 0;
  a100.processes = {{4242, "/usr/bin/train", 434ull << 20},
                    {4343, "/a/very/long/path/to/a/program/named/serve", std::nullopt}};
  SmiGpu t4;
  t4.index = 1;
  t4.name = "Tesla T4";
  t4.uuid = "GPU-bbbb";
  t4.bus_id = "00000000:08:00.0";
  t4.memory_total = 15360ull << 20;
  node.gpus = {a100, t4};
  return node;
}

struct Outcome {
  Exit code;
  std::string text, message;
};

Outcome Smi(const std::string& line, FakeSource* source) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  Request request;
  Outcome outcome;
  outcome.code = ParseRequest(words, &request, &outcome.message);
  if (outcome.code == kOk) outcome.code = Answer(request, source, &outcome.text, &outcome.message);
  return outcome;
}
Outcome Smi(const std::string& line) {
  FakeSource source;
  source.node = Node();
  return Smi(line, &source);
}

TEST(SmiTest, QueriesAsCommaSeparatedValues) {
  EXPECT_EQ(Smi("--query-gpu=index,name,memory.total,power.draw,utilization.gpu --format=csv").text,
            "index, name, memory.total [MiB], power.draw [W], utilization.gpu [%]\n"
            "0, NVIDIA A100-SXM4-40GB, 40960 MiB, 48.12 W, 37 %\n"
            "1, Tesla T4, 15360 MiB, [N/A], [N/A]\n");
  EXPECT_EQ(Smi("-i 0 --query-gpu=memory.used --format=csv,noheader,nounits").text, "512\n");
  EXPECT_EQ(Smi("--query-gpu memory.free --format csv,nounits --id=GPU-aaaa").text, "memory.free [MiB]\n40000\n");
  // Second names are the first ones' in the header; modes are words.
  EXPECT_EQ(
      Smi("--query-gpu=gpu_name,compute_mode,mig.mode.current,compute_cap,pci.bus,pstate,count --format=csv").text,
      "name, compute_mode, mig.mode.current, compute_cap, pci.bus, pstate, count\n"
      "NVIDIA A100-SXM4-40GB, Exclusive_Process, Disabled, 8.0, 0x07, P0, 2\n"
      "Tesla T4, [N/A], [N/A], 0.0, 0x00, [N/A], 2\n");
  EXPECT_EQ(Smi("--query-compute-apps=pid,process_name,used_memory,gpu_uuid --format=csv").text,
            "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n"
            "4242, /usr/bin/train, 434 MiB, GPU-aaaa\n"
            "4343, /a/very/long/path/to/a/program/named/serve, [N/A], GPU-aaaa\n");
  EXPECT_EQ(Smi("-i 1 --query-compute-apps=pid --format=csv,noheader").text, "");
}

TEST(SmiTest, RefusesWhatTheToolRefuses) {
  Outcome unknown = Smi("--query-gpu=index,nonsense --format=csv");
  EXPECT_EQ(unknown.code, kInvalidArgument);
  EXPECT_EQ(unknown.message, "Field \"nonsense\" is not a valid field to query.");
  EXPECT_EQ(unknown.text, "");
  for (const char* line :
       {"--query-gpu=index", "--query-gpu=index --format=xml", "--query-gpu=index --format=csv,what", "--nonsense",
        "-i", "--query-gpu", "-l 0", "--list-gpus=1", "-c NOTHING", "--query-gpu= --format=csv"}) {
    EXPECT_EQ(Smi(line).code, kInvalidArgument) << line;
  }
  EXPECT_EQ(Smi("-i 7 -L").code, kNotFound);
  EXPECT_EQ(Smi("-q").code, kNotBuilt);
  EXPECT_EQ(Smi("topo -m").code, kNotBuilt);
  FakeSource empty;
  EXPECT_EQ(Smi("", &empty).code, kNotFound);
  empty.answer = kDriverNotLoaded;
  EXPECT_EQ(Smi("", &empty).code, kDriverNotLoaded);
}

TEST(SmiTest, ListsAndChooses) {
  EXPECT_EQ(Smi("-L").text, "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)\nGPU 1: Tesla T4 (UUID: GPU-bbbb)\n");
  for (const char* id : {"1", "GPU-bbbb", "gpu-BBBB", "00000000:08:00.0", "0000:08:00.0", "08:00.0"}) {
    EXPECT_EQ(Smi(std::string("-L -i ") + id).text, "GPU 1: Tesla T4 (UUID: GPU-bbbb)\n") << id;
  }
  EXPECT_EQ(Smi("-L -i 1,0").text, Smi("-L").text) << "in the node's order";
}

TEST(SmiTest, SetsTheComputeModeIfItMay) {
  FakeSource source;
  source.node = Node();
  Outcome outcome = Smi("-i 0 -c EXCLUSIVE_PROCESS", &source);
  EXPECT_EQ(source.mode_set, 3);
  EXPECT_EQ(outcome.code, kNoPermission);
}

TEST(SmiTest, LoopsWhenTold) {
  Request request;
  std::string message;
  EXPECT_EQ(ParseRequest({"-l", "3"}, &request, &message), kOk);
  EXPECT_EQ(request.loop_ms, 3000);
  Request other;
  EXPECT_EQ(ParseRequest({"-l", "-L"}, &other, &message), kOk);
  EXPECT_EQ(other.loop_ms, 5000);
  EXPECT_EQ(other.action, Action::kList);
}

TEST(SmiTest, TheTableHasItsShape) {
  FakeSource source;
  source.node = Node();
  std::string text = Table(source.node, {0, 1}, "Sun Nov 29 18:00:00 2026");
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "Sun Nov 29 18:00:00 2026");
  while (std::getline(lines, line)) EXPECT_TRUE(line.empty() || line.size() == 91) << line;
  EXPECT_THAT(
      text, HasSubstr("| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |\n"));
  EXPECT_THAT(
      text, HasSubstr("|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:07:00.0 Off |                    0 |\n"
                      "| N/A   33C    P0             48W /  400W |     512MiB /  40960MiB |     37%   E. Process |\n"));
  EXPECT_THAT(
      text, HasSubstr("|    0   N/A  N/A             4242      C   /usr/bin/train                         434MiB |\n"));
  EXPECT_THAT(text, HasSubstr("...g/path/to/a/program/named/serve"));
  EXPECT_THAT(Table(source.node, {1}, ""), HasSubstr("No running processes found"));
  EXPECT_THAT(Smi("").text, HasSubstr("emulated"));
}

TEST(SmiTest, EveryFieldIsExplained) {
  EXPECT_THAT(GpuFieldHelp(), HasSubstr("\"clocks.current.sm\" or \"clocks.sm\""));
  EXPECT_THAT(AppFieldHelp(), HasSubstr("\"used_gpu_memory\" or \"used_memory\""));
}

}  // namespace
}  // namespace mete::emulator::smi
