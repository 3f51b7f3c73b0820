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
  Exit answer = kOk, refusal = kOk;
  std::vector<std::pair<SmiSetting, uint64_t>> set;
  unsigned wanted = 0;
  Exit Read(unsigned what, SmiSnapshot* snapshot, std::string* message) override {
    wanted = what;
    *snapshot = node;
    if (answer != kOk) *message = "broken";
    return answer;
  }
  Exit Set(uint32_t, SmiSetting setting, uint64_t value, std::string* message) override {
    set.emplace_back(setting, value);
    if (refusal != kOk) *message = "no permission";
    return refusal;
  }
  std::vector<SmiLimits> limits;
  Exit SetLimits(uint32_t, const std::string& folder, const SmiLimits& asked, std::string* message) override {
    limits.push_back(asked);
    if (refusal != kOk) *message = "no permission for " + folder;
    return refusal;
  }
  Exit ReadLimits(uint32_t, const std::string&, SmiLimits* got, std::string*) override {
    *got = {4ull << 30, UINT64_MAX, 512ull << 20};
    return kOk;
  }
  Exit ReadTopology(size_t gpus, SmiTopology* topology, std::string*) override {
    topology->levels.assign(gpus, std::vector<int>(gpus, 40));
    topology->nvlinks.assign(gpus, std::vector<unsigned>(gpus, 0));
    topology->nvlinks[0][1] = 12;
    topology->peers.assign(gpus, std::vector<std::vector<int>>(gpus, {0, 0, 5, 5, 0}));
    topology->processors.assign(gpus, "0-15");
    topology->memory.assign(gpus, "0");
    return kOk;
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
  a100.ecc_volatile = {7, 0, 0, 0};
  a100.clock_reasons = 4;
  a100.memory_clocks_mhz = {1215};
  a100.sm_clocks_mhz = {1410, 1395};
  a100.nvlink_mbps = {25'781, std::nullopt};
  a100.time_slice_class = 1;
  a100.accounting = 1;
  a100.accounted = {{77, 50, 10, 3ull << 30, 1500, false}};
  a100.mig = 0;
  a100.processes = {{4242, "/usr/bin/train", 434ull << 20, 30, 5},
                    {4343, "/a/very/long/path/to/a/program/named/serve", std::nullopt, std::nullopt, std::nullopt}};
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
        "-i", "--query-gpu", "-lms 0", "--list-gpus=1", "-c NOTHING", "--query-gpu= --format=csv"}) {
    EXPECT_EQ(Smi(line).code, kInvalidArgument) << line;
  }
  EXPECT_EQ(Smi("-i 7 -L").code, kNotFound);
  for (const char* line : {"-q -d NOTHING",
                           "-L -x",
                           "topo",
                           "topo -p2p z",
                           "dmon -s z",
                           "dmon -d x",
                           "pmon -c 0",
                           "nvlink",
                           "drain -q",
                           "drain -p 0",
                           "compute-policy --set-timeslice 4",
                           "-pl watts",
                           "-pl nan",
                           "-ac 1215",
                           "-ac 1,2,3",
                           "-pm 2",
                           "-e maybe",
                           "-r -pm 1",
                           "-lgc x",
                           "-f"}) {
    EXPECT_EQ(Smi(line).code, kInvalidArgument) << line;
  }
  EXPECT_EQ(Smi("-i 7 -L").code, kNotFound);
  EXPECT_EQ(Smi("vgpu").code, kNotBuilt);
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

TEST(SmiTest, ChangesWhatItMay) {
  const std::vector<std::pair<std::string, std::pair<SmiSetting, uint64_t>>> lines = {
      {"-c EXCLUSIVE_PROCESS", {SmiSetting::kComputeMode, 3}},
      {"-pm 1", {SmiSetting::kPersistence, 1}},
      {"-pl 250.5", {SmiSetting::kPowerLimit, 250'500}},
      {"-ac 1215,1200", {SmiSetting::kApplicationClocks, 1215ull << 32 | 1200}},
      {"-rac", {SmiSetting::kResetApplicationClocks, 0}},
      {"--lock-gpu-clocks=300,900", {SmiSetting::kLockedClocks, 900ull << 32 | 300}},
      {"-e DISABLED", {SmiSetting::kEcc, 0}},
      {"-p 1", {SmiSetting::kClearEcc, 1}},
      {"-am 1", {SmiSetting::kAccounting, 1}},
      {"-r", {SmiSetting::kReset, 0}},
  };
  for (const auto& [line, change] : lines) {
    FakeSource source;
    source.node = Node();
    const Outcome outcome = Smi("-i 0 " + line, &source);
    EXPECT_EQ(outcome.code, kOk) << line;
    EXPECT_EQ(source.set, (std::vector<std::pair<SmiSetting, uint64_t>>{change})) << line;
    EXPECT_THAT(outcome.text, HasSubstr("GPU 00000000:07:00.0")) << line;
    EXPECT_THAT(outcome.text, HasSubstr("All done.\n")) << line;
  }
  FakeSource source;
  source.node = Node();
  source.refusal = kNoPermission;
  EXPECT_EQ(Smi("-c DEFAULT", &source).code, kNoPermission);
  EXPECT_EQ(source.set.size(), 1u) << "it stops at the first refusal";
  source.refusal = kOk;
  source.set.clear();
  EXPECT_EQ(Smi("compute-policy -i GPU-aaaa --set-timeslice 3", &source).code, kOk);
  EXPECT_EQ(source.set[0].second, 3u);
  EXPECT_THAT(Smi("compute-policy -l").text, HasSubstr("|   0  Timeslice       Short          |\n"));
  EXPECT_THAT(Smi("compute-policy -l").text, HasSubstr("|   1  Timeslice       Not Supported  |\n"));
}

TEST(SmiTest, LimitsTheMemoryOfACgroup) {
  FakeSource source;
  source.node = Node();
  EXPECT_EQ(Smi("memory-limits --set -n /sys/fs/cgroup/a --soft-limit 4096 --hard-limit 8192 -i 0", &source).code, kOk);
  EXPECT_EQ(Smi("memory-limits --set --namespace /sys/fs/cgroup/a --hard-limit max -i 0", &source).code, kOk);
  ASSERT_EQ(source.limits.size(), 2u);
  EXPECT_EQ(source.limits[0].soft, 4ull << 30);
  EXPECT_EQ(source.limits[0].hard, 8ull << 30);
  EXPECT_EQ(source.limits[1].hard, UINT64_MAX);
  source.refusal = kNoPermission;
  EXPECT_EQ(Smi("memory-limits --set -n /sys/fs/cgroup/a --hard-limit 1 -i 0", &source).code, kNoPermission);
  EXPECT_EQ(Smi("memory-limits --get -n /sys/fs/cgroup/a -i 0", &source).text,
            "namespace: /sys/fs/cgroup/a\nsoft limit: 4096 MiB\nhard limit: max\ncurrent used: 512 MiB\n");
  EXPECT_EQ(Smi("memory-limits -n /a", &source).code, kInvalidArgument);
  EXPECT_EQ(Smi("memory-limits --get", &source).code, kInvalidArgument);
  EXPECT_EQ(Smi("memory-limits --set -n /a --hard-limit x", &source).code, kInvalidArgument);
}

TEST(SmiTest, ReportsEverythingAsTextAndAsXml) {
  const std::string text = Smi("-q").text;
  EXPECT_THAT(text, HasSubstr("\n==============NVSMI LOG==============\n"));
  EXPECT_THAT(text, HasSubstr("Attached GPUs                             : 2\nGPU 00000000:07:00.0\n"
                              "    Product Name                          : NVIDIA A100-SXM4-40GB\n"));
  EXPECT_THAT(text, HasSubstr("    FB Memory Usage\n        Total                             : 40960 MiB\n"));
  EXPECT_THAT(text, HasSubstr("        SW Power Cap                      : Active\n"));
  EXPECT_THAT(text, HasSubstr("            DRAM Correctable              : 7\n"));
  EXPECT_THAT(text, HasSubstr("    Processes\n        GPU instance ID                   : N/A\n"));
  EXPECT_THAT(text, HasSubstr("        Process ID                        : 4242\n"));
  EXPECT_THAT(text, HasSubstr("    Accounted Processes\n        Process ID                        : 77\n"));
  EXPECT_THAT(text, HasSubstr("    Processes                             : None\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("Supported Clocks")));
  const std::string part = Smi("-q -d MEMORY,utilization -i 0").text;
  EXPECT_THAT(part, HasSubstr("GPU                               : 37 %\n"));
  EXPECT_THAT(part, testing::Not(HasSubstr("Product Name")));
  EXPECT_THAT(Smi("-q -d SUPPORTED_CLOCKS -i 0").text, HasSubstr("1395 MHz"));

  FakeSource source;
  source.node = Node();
  source.node.gpus[0].processes[0].name = "/bin/a<b>&c";
  const std::string xml = Smi("-q -x", &source).text;
  EXPECT_EQ(source.wanted, SmiSource::kAccounting);
  EXPECT_THAT(xml,
              HasSubstr("<gpu id=\"00000000:07:00.0\">\n\t\t<product_name>NVIDIA A100-SXM4-40GB</product_name>\n"));
  EXPECT_THAT(xml, HasSubstr("\t\t<fb_memory_usage>\n\t\t\t<total>40960 MiB</total>\n"));
  EXPECT_THAT(xml, HasSubstr("<process_name>/bin/a&lt;b&gt;&amp;c</process_name>"));
  // Every element that opens closes, in order.
  std::vector<std::string> open;
  for (size_t at = xml.find("<nvidia_smi_log>"); at != std::string::npos; at = xml.find('<', at + 1)) {
    std::string tag = xml.substr(at + 1, xml.find_first_of(" >", at) - at - 1);
    if (tag[0] != '/') {
      open.push_back(tag);
      continue;
    }
    ASSERT_FALSE(open.empty());
    EXPECT_EQ(open.back(), tag.substr(1));
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(SmiTest, MonitorsAndTopology) {
  EXPECT_EQ(Smi("dmon -c 1 -s pu -i 0").text,
            "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa \n"
            "# Idx      W      C      C      %      %      %      %      %      % \n"
            "    0     48     33      -     37      5      -      -      -      - \n");
  FakeSource source;
  source.node = Node();
  EXPECT_EQ(Smi("pmon -c 1", &source).text,
            "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n"
            "# Idx           #    C/G      %      %      %      %      %      %    name \n"
            "    0       4242      C     30      5      -      -      -      -    train    \n"
            "    0       4343      C      -      -      -      -      -      -    serve    \n"
            "    1          -      -      -      -      -      -      -      -    -    \n");
  EXPECT_EQ(source.wanted, SmiSource::kUsage);
  EXPECT_THAT(Smi("topo -m").text, HasSubstr("GPU0\t X \tNV12\t0-15\t0\t\tN/A\nGPU1\tNODE\t X \t0-15\t0\t\tN/A\n"));
  EXPECT_THAT(Smi("topo -p2p n").text, HasSubstr(" GPU0\tX\tNS\t\n"));
  EXPECT_THAT(Smi("nvlink -s").text, HasSubstr("\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>\n"));
  EXPECT_THAT(Smi("drain -p 0000:07:00.0 -q").text, HasSubstr("GPU 00000000:07:00.0 is: not draining"));
}

TEST(SmiTest, ALostGpuIsShownAndIsTheStatus) {
  FakeSource source;
  source.node = Node();
  source.node.gpus[0].lost = true;
  const Outcome table = Smi("", &source);
  EXPECT_EQ(table.code, kGpuLost);
  EXPECT_THAT(table.text, HasSubstr("ERR!"));
  EXPECT_THAT(table.text, HasSubstr("Tesla T4"));
  EXPECT_EQ(Smi("-q", &source).code, kGpuLost);
  EXPECT_EQ(Smi("-i 1 --query-gpu=index --format=csv,noheader", &source).code, kOk);
  EXPECT_EQ(Smi("-L", &source).code, kOk);
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

TEST(SmiTest, OtherTables) {
  EXPECT_EQ(Smi("--query-accounted-apps=pid,gpu_util,max_memory_usage,time --format=csv").text,
            "pid, gpu_utilization [%], max_memory_usage [MiB], time [ms]\n77, 50 %, 3072 MiB, 1500 ms\n");
  EXPECT_EQ(Smi("--query-supported-clocks=mem,gr --format=csv,noheader").text,
            "1215 MHz, 1410 MHz\n1215 MHz, 1395 MHz\n");
  EXPECT_EQ(Smi("-i 1 --query-remapped-rows=gpu_uuid,remapped_rows.pending --format=csv,noheader").text,
            "GPU-bbbb, [N/A]\n");
  EXPECT_EQ(Smi("-i 0 --query-gpu=ecc.errors.corrected.volatile.total,clocks_throttle_reasons.sw_power_cap,"
                "clocks_event_reasons.active --format=csv,noheader")
                .text,
            "7, Active, 0x0000000000000004\n");
}

TEST(SmiTest, EveryFieldIsExplained) {
  EXPECT_THAT(FieldHelp(QueryTable::kGpus), HasSubstr("\"clocks.current.sm\" or \"clocks.sm\""));
  EXPECT_THAT(FieldHelp(QueryTable::kComputeApps), HasSubstr("\"used_gpu_memory\" or \"used_memory\""));
  EXPECT_THAT(FieldHelp(QueryTable::kAccountedApps), HasSubstr("\"gpu_utilization\" or \"gpu_util\""));
}

}  // namespace
}  // namespace mete::emulator::smi
