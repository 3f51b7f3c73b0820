// Calls every public NVML name by data/nvml/behaviour.tsv: with well-formed arguments on three boards, with a null for
// each pointer, with handles of nobody, wrong versions, extreme numbers, and before nvmlInit.
//
// All parameters are integers or pointers, which the x86-64 calling convention passes alike; so one type of call does.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "emulator/nvml/fake_node.h"
#include "nvml/abi_details.h"

extern "C" {
#define CALL(symbol, kind, answers, parameters, described) \
  int symbol(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
#include "calls.inc"
#undef CALL
}

namespace mete::nvml::abi {
namespace {

using emulator::FakeNode;

enum Kind { implemented, absent, later };
using Function = int (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

struct Parameter {
  std::string type, name;
  bool pointer() const { return type.find('*') != std::string::npos; }
};
struct Entry {
  std::string symbol;
  Kind kind;
  std::string answers;
  std::vector<Parameter> parameters;
  bool described;
  Function call;
};

std::vector<Parameter> Parse(const std::string& text) {
  std::vector<Parameter> list;
  if (text == "void") return list;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(", ", at), text.size());
    const std::string one = text.substr(at, comma - at);
    const size_t space = one.rfind(' ');
    list.push_back({one.substr(0, space), one.substr(space + 1)});
    at = comma + 2;
  }
  return list;
}

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = {
#define CALL(symbol, kind, answers, parameters, described) \
  {#symbol, kind, answers, Parse(parameters), described, &symbol},
#include "calls.inc"
#undef CALL
  };
  return entries;
}

int Code(const char* name) {
  const std::map<std::string, int> codes = {{"SUCCESS", NVML_SUCCESS},
                                            {"INVALID_ARGUMENT", NVML_ERROR_INVALID_ARGUMENT},
                                            {"NOT_SUPPORTED", NVML_ERROR_NOT_SUPPORTED},
                                            {"NOT_FOUND", NVML_ERROR_NOT_FOUND},
                                            {"TIMEOUT", NVML_ERROR_TIMEOUT}};
  return codes.at(name);
}

// What well-formed arguments get on board 0, 1 or 2.
int Expected(const Entry& entry, unsigned board) {
  if (entry.kind != implemented) return NVML_ERROR_NOT_SUPPORTED;
  if (entry.answers == "ok") return NVML_SUCCESS;
  size_t at = 0;
  for (; board > 0; --board) at = entry.answers.find(',', at) + 1;
  return Code(entry.answers.substr(at, entry.answers.find(',', at) - at).c_str());
}

template <typename T>
std::pair<std::string, unsigned> Versioned(const char* type, unsigned version) {
  return {std::string(type) + "*", StructVersion<T>(version)};
}
#define VERSIONED(type, version) Versioned<type>(#type, version)
const std::map<std::string, unsigned>& Versions() {
  static const std::map<std::string, unsigned> versions = {VERSIONED(nvmlPciInfoExt_t, 1),
                                                           VERSIONED(nvmlMemory_v2_t, 2),
                                                           VERSIONED(nvmlProcessDetailList_t, 1),
                                                           VERSIONED(nvmlProcessesUtilizationInfo_t, 1),
                                                           VERSIONED(nvmlTemperature_t, 1),
                                                           VERSIONED(nvmlDeviceAddressingMode_t, 1),
                                                           VERSIONED(nvmlDeviceCapabilities_t, 1),
                                                           VERSIONED(nvmlEccSramErrorStatus_t, 1),
                                                           VERSIONED(nvmlGpuFabricInfoV_t, 3),
                                                           VERSIONED(nvmlMarginTemperature_t, 1),
                                                           VERSIONED(nvmlPdi_t, 1),
                                                           VERSIONED(nvmlRepairStatus_t, 1),
                                                           VERSIONED(nvmlPowerValue_v2_t, 2),
                                                           VERSIONED(nvmlSystemDriverBranchInfo_t, 1),
                                                           VERSIONED(nvmlGpuInstanceProfileInfo_v2_t, 2),
                                                           VERSIONED(nvmlComputeInstanceProfileInfo_v2_t, 2),
                                                           {"const nvmlUUID_t*", StructVersion<nvmlUUID_t>(1)},
                                                           {"nvmlGpmSupport_t*", 1}};
  return versions;
}

constexpr size_t kRoom = 1 << 18;  // of each pointer's target

class CallsTest : public testing::Test {
 protected:
  void SetUp() override { Begin(); }
  void TearDown() override { End(); }

  void Begin() {
    FakeNode::Get().Reset();
    FakeNode::Get().AddH100();
    for (auto& state : FakeNode::Get().states) state.accounting_mode = 1;
    emulator::ProcessInfo process = {};
    process.pid = 100;
    FakeNode::Get().processes = {process};
    FakeNode::Get().ns_per_look = 200'000'000;
    emulator::AccountingRecord record = {};
    record.pid = 100;
    FakeNode::Get().accounted = {record};
    ASSERT_EQ(Named("nvmlInit_v2")(0, 0, 0, 0, 0, 0), 0);
    for (unsigned i = 0; i < 3; ++i) {
      ASSERT_EQ(Named("nvmlDeviceGetHandleByIndex_v2")(i, reinterpret_cast<uint64_t>(&boards_[i]), 0, 0, 0, 0), 0);
    }
    FakeNode::Get().mig = true;
    const auto at = [](uint64_t& handle) { return reinterpret_cast<uint64_t>(&handle); };
    ASSERT_EQ(Named("nvmlDeviceGetMigDeviceHandleByIndex")(boards_[0], 0, at(mig_device_), 0, 0, 0), 0);
    ASSERT_EQ(Named("nvmlDeviceGetGpuInstanceById")(boards_[0], 1, at(gpu_instance_), 0, 0, 0), 0);
    ASSERT_EQ(Named("nvmlGpuInstanceGetComputeInstanceById")(gpu_instance_, 0, at(compute_instance_), 0, 0, 0), 0);
    FakeNode::Get().mig = false;
    ASSERT_EQ(Named("nvmlEventSetCreate")(reinterpret_cast<uint64_t>(&events_), 0, 0, 0, 0, 0), 0);
    for (uint64_t& sample : samples_) {
      ASSERT_EQ(Named("nvmlGpmSampleAlloc")(reinterpret_cast<uint64_t>(&sample), 0, 0, 0, 0, 0), 0);
      ASSERT_EQ(Named("nvmlGpmSampleGet")(boards_[2], sample, 0, 0, 0, 0), 0);
    }
  }
  void End() {
    while (Named("nvmlShutdown")(0, 0, 0, 0, 0, 0) == 0) {
    }
  }

  static Function Named(const char* symbol) {
    for (const Entry& entry : Entries()) {
      if (entry.symbol == symbol) return entry.call;
    }
    ADD_FAILURE() << symbol;
    return nullptr;
  }

  uint64_t Target(size_t index, const Parameter& parameter) {
    std::vector<char>& room = rooms_[index];
    room.assign(kRoom, 0);
    const auto version = Versions().find(parameter.type);
    if (version != Versions().end()) std::memcpy(room.data(), &version->second, sizeof(unsigned));
    constexpr unsigned kListRoom = 1000;
    if (parameter.type == "unsigned int*") std::memcpy(room.data(), &kListRoom, sizeof(kListRoom));
    if (parameter.type == "const nvmlGpuInstancePlacement_t*") {
      *reinterpret_cast<nvmlGpuInstancePlacement_t*>(room.data()) = {4, 4};
    }
    if (parameter.type == "const nvmlComputeInstancePlacement_t*") {
      *reinterpret_cast<nvmlComputeInstancePlacement_t*>(room.data()) = {0, 3};
    }
    if (parameter.type == "const char*") std::strcpy(room.data(), Text(parameter.name).c_str());
    if (parameter.type == "nvmlPciInfo_t*") {
      std::strcpy(reinterpret_cast<nvmlPciInfo_t*>(room.data())->busId, "00000000:07:00.0");
    }
    if (parameter.type == "const nvmlUUID_t*") {
      auto* uuid = reinterpret_cast<nvmlUUID_t*>(room.data());
      uuid->type = NVML_UUID_TYPE_BINARY;
      std::memcpy(uuid->value.bytes, FakeNode::Get().gpus[0].uuid, 16);
    }
    if (parameter.type == "nvmlAccountingStats_v2_t*") {
      reinterpret_cast<nvmlAccountingStats_v2_t*>(room.data())->pid = 100;
    }
    if (parameter.type == "nvmlProcessDetailList_t*") {
      auto* list = reinterpret_cast<nvmlProcessDetailList_t*>(room.data());
      list->numProcArrayEntries = 8;
      list->procArray = reinterpret_cast<nvmlProcessDetail_v1_t*>(room.data() + kRoom / 2);
    }
    if (parameter.type == "nvmlProcessesUtilizationInfo_t*") {
      auto* list = reinterpret_cast<nvmlProcessesUtilizationInfo_t*>(room.data());
      list->processSamplesCount = 8;
      list->procUtilArray = reinterpret_cast<nvmlProcessUtilizationInfo_v1_t*>(room.data() + kRoom / 2);
    }
    if (parameter.type == "nvmlGpmMetricsGet_t*") {
      auto* get = reinterpret_cast<nvmlGpmMetricsGet_t*>(room.data());
      *get = {};
      get->version = 1;
      get->numMetrics = 1;
      get->sample1 = reinterpret_cast<nvmlGpmSample_t>(samples_[0]);
      get->sample2 = reinterpret_cast<nvmlGpmSample_t>(samples_[1]);
      get->metrics[0].metricId = 1;
    }
    return reinterpret_cast<uint64_t>(room.data());
  }
  static std::string Text(const std::string& name) {
    char text[80] = {};
    if (name == "pciBusId") return "00000000:07:00.0";
    uint64_t device = 0;
    Named("nvmlDeviceGetHandleByIndex_v2")(0, reinterpret_cast<uint64_t>(&device), 0, 0, 0, 0);
    Named(name == "serial" ? "nvmlDeviceGetSerial" : "nvmlDeviceGetUUID")(device, reinterpret_cast<uint64_t>(text),
                                                                          sizeof(text), 0, 0, 0);
    return text;
  }

  uint64_t Scalar(const Entry& entry, const Parameter& parameter, unsigned board) {
    static const std::map<std::string, uint64_t> values = {{"pid", 100},
                                                           {"length", 200},
                                                           {"cpuSetSize", 4},
                                                           {"nodeSetSize", 4},
                                                           {"valuesCount", 1},
                                                           {"memClockMHz", 1215},
                                                           {"memoryClockMHz", 1215},
                                                           {"graphicsClockMHz", 1410},
                                                           {"minGpuClockMHz", 300},
                                                           {"maxGpuClockMHz", 1410},
                                                           {"limit", 150'000},
                                                           {"size", 64},
                                                           {"eventTypes", 8},
                                                           {"locationType", 2},
                                                           {"level", NVML_TOPOLOGY_NODE}};
    if (parameter.name == "migDevice") return mig_device_;
    if (parameter.type == "nvmlDevice_t") return boards_[parameter.name == "device2" ? 1 : board];
    if (parameter.type == "nvmlGpuInstance_t") return gpu_instance_;
    if (parameter.type == "nvmlComputeInstance_t") return compute_instance_;
    if (parameter.type == "nvmlEventSet_t") return events_;
    if (parameter.type == "nvmlGpmSample_t") return samples_[0];
    if (parameter.name == "profileId") return entry.symbol.rfind("nvmlDevice", 0) == 0 ? 9 : 0;
    if (parameter.name == "profile") return entry.symbol.rfind("nvmlDevice", 0) == 0 ? 2 : 0;
    if (parameter.name == "id") return entry.symbol.rfind("nvmlDevice", 0) == 0 ? 1 : 0;
    const auto known = values.find(parameter.name);
    return known == values.end() ? 0 : known->second;
  }

  // Instances are there for the calls about them; with them a GPU answers others differently.
  static bool OfMig(const Entry& entry) {
    for (const char* word : {"Mig", "GpuInstance", "ComputeInstance"}) {
      if (entry.symbol.find(word) != std::string::npos) return entry.symbol.find("Vgpu") == std::string::npos;
    }
    return false;
  }

  std::vector<uint64_t> WellFormed(const Entry& entry, unsigned board) {
    FakeNode::Get().mig = OfMig(entry);
    std::vector<uint64_t> arguments(6, 0);
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      const Parameter& parameter = entry.parameters[i];
      arguments[i] = parameter.pointer() ? Target(i, parameter) : Scalar(entry, parameter, board);
    }
    return arguments;
  }
  static int Call(const Entry& entry, const std::vector<uint64_t>& a) {
    return entry.call(a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  static bool Begins(const Entry& entry) { return entry.symbol.rfind("nvmlInit", 0) == 0 || entry.parameters.empty(); }

  uint64_t boards_[3] = {}, events_ = 0, samples_[2] = {};
  uint64_t mig_device_ = 0, gpu_instance_ = 0, compute_instance_ = 0;
  std::vector<char> rooms_[6];
};

TEST_F(CallsTest, WellFormedArgumentsGetTheRecordedAnswer) {
  int count[3] = {};
  for (const Entry& entry : Entries()) {
    ++count[entry.kind];
    ASSERT_LE(entry.parameters.size(), 6u) << entry.symbol;
    EXPECT_TRUE(entry.kind != implemented || entry.described) << entry.symbol;
    for (unsigned board = 0; board < 3; ++board) {
      EXPECT_EQ(Call(entry, WellFormed(entry, board)), Expected(entry, board)) << entry.symbol << " on board " << board;
      End();
      Begin();
    }
  }
  EXPECT_GT(count[implemented], 200);
  EXPECT_GT(count[absent], 50);
}

TEST_F(CallsTest, OnlyWhatIsNotEmulatedYetIsCounted) {
  for (const Entry& entry : Entries()) {
    FakeNode::Get().unsupported.clear();
    if (!Begins(entry)) Call(entry, WellFormed(entry, 0));
    EXPECT_EQ(FakeNode::Get().unsupported.size(), entry.kind == later ? 1u : 0u) << entry.symbol;
  }
}

TEST_F(CallsTest, ANullForAPointerIsAnInvalidArgument) {
  for (const Entry& entry : Entries()) {
    if (entry.kind != implemented) continue;
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      if (!entry.parameters[i].pointer()) continue;
      for (unsigned board = 0; board < 3; ++board) {
        std::vector<uint64_t> arguments = WellFormed(entry, board);
        arguments[i] = 0;
        const int code = Call(entry, arguments);
        // Lists: no place for the elements is how a caller asks for their number.
        const bool after_count = i > 0 && entry.parameters[i - 1].type == "unsigned int*";
        const bool list = after_count || entry.symbol == "nvmlDeviceGetProcessUtilization" ||
                          entry.parameters[i].name == "placements" || entry.parameters[i].name == "timestamps";
        const bool refused = code == NVML_ERROR_INVALID_ARGUMENT ||
                             (code == NVML_ERROR_NOT_SUPPORTED && Expected(entry, board) == NVML_ERROR_NOT_SUPPORTED);
        const bool counted = list && (code == Expected(entry, board) || code == NVML_ERROR_INSUFFICIENT_SIZE);
        EXPECT_TRUE(refused || counted) << entry.symbol << " parameter " << entry.parameters[i].name << ": " << code;
        End();
        Begin();
      }
    }
  }
}

TEST_F(CallsTest, HandlesOfNobodyAreInvalidArguments) {
  char elsewhere = 0;
  const uint64_t bad[] = {0, 1, ~0ull, boards_[0] + 3, boards_[0] - 1, reinterpret_cast<uint64_t>(&elsewhere)};
  for (const Entry& entry : Entries()) {
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      const std::string& type = entry.parameters[i].type;
      const bool handle = type == "nvmlDevice_t" || type == "nvmlEventSet_t" || type == "nvmlGpmSample_t" ||
                          type == "nvmlGpuInstance_t" || type == "nvmlComputeInstance_t";
      if (!handle || (entry.kind != implemented && (i > 0 || type != "nvmlDevice_t"))) continue;
      for (const uint64_t value : bad) {
        if ((type == "nvmlEventSet_t" || type == "nvmlGpmSample_t") && value == 1)
          continue;  // sets and samples are counted from there
        std::vector<uint64_t> arguments = WellFormed(entry, 2);
        arguments[i] = value;
        EXPECT_EQ(Call(entry, arguments), NVML_ERROR_INVALID_ARGUMENT) << entry.symbol << " " << value;
      }
    }
  }
}

TEST_F(CallsTest, StructuresOfAnotherVersionAreRefused) {
  int checked = 0;
  for (const Entry& entry : Entries()) {
    if (entry.kind != implemented) continue;
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      if (Versions().count(entry.parameters[i].type) == 0) continue;
      for (const unsigned version : {0u, 7u, 0xffffffffu}) {
        std::vector<uint64_t> arguments = WellFormed(entry, 2);
        std::memcpy(rooms_[i].data(), &version, sizeof(version));
        EXPECT_EQ(Call(entry, arguments), NVML_ERROR_ARGUMENT_VERSION_MISMATCH) << entry.symbol << " " << version;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 30);
}

TEST_F(CallsTest, ExtremeNumbersAreAnswered) {
  for (const Entry& entry : Entries()) {
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      const Parameter& parameter = entry.parameters[i];
      // A wait of 49 days is no error, and how many values there are is the caller's word.
      if (parameter.pointer() || parameter.name == "timeoutms") continue;
      for (const uint64_t value : {uint64_t{0xffffffff}, uint64_t{0x80000000}, uint64_t{1000}, ~uint64_t{0}}) {
        if (parameter.name == "valuesCount" && value == 1000) continue;
        for (unsigned board = 0; board < 3; ++board) {
          std::vector<uint64_t> arguments = WellFormed(entry, board);
          arguments[i] = value;
          const int code = Call(entry, arguments);
          EXPECT_TRUE(code >= NVML_SUCCESS && code <= NVML_ERROR_RESET_TYPE_NOT_SUPPORTED)
              << entry.symbol << " " << parameter.name << " = " << value << ": " << code;
        }
      }
    }
  }
}

TEST_F(CallsTest, NothingAnswersBeforeInitialisation) {
  std::vector<std::vector<uint64_t>> arguments;
  for (const Entry& entry : Entries()) arguments.push_back(WellFormed(entry, 0));
  for (const Entry& entry : Entries()) {
    if (Begins(entry)) continue;
    const std::vector<uint64_t> well_formed = WellFormed(entry, 0);
    End();
    EXPECT_EQ(Call(entry, well_formed), NVML_ERROR_UNINITIALIZED) << entry.symbol;
    Begin();
  }
}

}  // namespace
}  // namespace mete::nvml::abi
