#include "gpu/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "gpu/embedded.h"

namespace mete::gpu {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(Catalogue, TheEmbeddedTableIsWhole) {
  const auto parsed = Catalogue::Parse(embedded::kBoards);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_GE(parsed->boards().size(), 21U);
  std::set<std::string> names;
  for (const Board& board : parsed->boards()) {
    EXPECT_THAT(board.estimated, Contains("context_memory_mib")) << board.id;
    EXPECT_LT(board.context_memory.count, board.memory.count / 20) << board.id;
    EXPECT_EQ(board.mig, board.compute_major >= 8 && board.compute_minor != 6 && board.compute_minor != 9) << board.id;
    EXPECT_TRUE(names.insert(ShortName(board)).second) << board.id << ": short names must tell boards apart";
    for (const auto& [field, ids] : board.sources) {
      for (const std::string& id : ids)
        EXPECT_FALSE(parsed->Source(id).empty()) << board.id << " " << field << " " << id;
    }
  }
}

TEST(Catalogue, HoldsWhatTheToolsPrint) {
  const auto found = Catalogue::BuiltIn().Find("A100-SXM4-40GB");
  ASSERT_TRUE(found.ok()) << found.status();
  const Board& a100 = **found;
  EXPECT_EQ(a100.id, "a100-sxm4-40gb");
  EXPECT_EQ(a100.nvml_name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(a100.architecture, "ampere");
  EXPECT_EQ(a100.compute_major, 8);
  EXPECT_EQ(a100.compute_minor, 0);
  EXPECT_EQ(a100.sm_count, 108);
  EXPECT_EQ(a100.memory.count, 40960 * kMiB);
  EXPECT_EQ(a100.memory_bandwidth_gbs, 1555);
  EXPECT_EQ(a100.l2_mib, 40);
  EXPECT_EQ(a100.pcie_gen, 4);
  EXPECT_EQ(a100.pcie_lanes, 16);
  EXPECT_EQ(a100.max_power_w, 400);
  EXPECT_EQ(a100.pci_device_id, 0x20B010DEU);
  EXPECT_TRUE(a100.mig);
  EXPECT_TRUE(a100.mps_static_partitions);
  EXPECT_EQ(a100.mps_clients, 60);
  EXPECT_EQ(a100.mps_clients_through_cuda_13_0, 48);
}

TEST(Catalogue, FindsBoardsByEveryName) {
  const Catalogue& catalogue = Catalogue::BuiltIn();
  for (const char* name : {"t4", "T4", "Tesla T4", "NVIDIA T4", "tesla t4"}) {
    const auto found = catalogue.Find(name);
    ASSERT_TRUE(found.ok()) << name;
    EXPECT_EQ((*found)->id, "t4") << name;
  }
  for (const Board& board : catalogue.boards()) {
    EXPECT_EQ(catalogue.Find(board.id).value(), &board);
    EXPECT_EQ(catalogue.Find(board.nvml_name).value(), &board);
    EXPECT_EQ(catalogue.Find(ShortName(board)).value(), &board);
    EXPECT_EQ(catalogue.ByDeviceName(board.nvml_name), &board);
  }
  EXPECT_EQ(catalogue.ByDeviceName("T5"), nullptr);
}

TEST(Catalogue, NamesTheNearestBoards) {
  const auto typo = Catalogue::BuiltIn().Find("A100-SXM-40GB");
  EXPECT_EQ(typo.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(typo.status()), HasSubstr("A100-SXM4-40GB"));
  EXPECT_THAT(Message(Catalogue::BuiltIn().Find("H100").status()), HasSubstr("H100 NVL"));
  EXPECT_THAT(Message(Catalogue::BuiltIn().Find("Radeon").status()), HasSubstr("mete explain"));
}

// A catalogue of one board with one line changed.
std::string Edited(const std::string& line, const std::string& replacement) {
  std::string text = R"(schema: mete/boards/1
collected: 2026-01-01
units: {memory_mib: MiB}
sources:
  s: {doc: "somewhere"}
boards:
  - id: x1
    nvml_name: "NVIDIA X1"
    architecture: ampere
    compute_capability: "8.0"
    sm_count: 10
    memory_mib: 1024
    memory_bandwidth_gbs: 100
    l2_mib: 4
    pcie: {gen: 3, lanes: 16}
    max_power_w: 70
    context_memory_mib: 100
    est: [context_memory_mib]
    sharing: {time_slicing: true, timeslice_policy_settable: true, mps: {supported: true, client_limit: 60, client_limit_through_cuda_13_0: 48, static_sm_partitions: true}, mig: false, vgpu_c_series: false}
    src: {nvml_name: [s], compute_capability: [s], sm_count: [s], memory_mib: [s], memory_bandwidth_gbs: [s], l2_mib: [s], pcie: [s], mps: [s], max_power_w: [s], vgpu: [s], context_memory_mib: [s], mig: [s], timeslice: [s]}
)";
  if (!line.empty()) {
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << line;
    text.replace(at, line.size(), replacement);
  }
  return text;
}

TEST(Catalogue, RefusesTablesThatAreNotWhole) {
  ASSERT_TRUE(Catalogue::Parse(Edited("", "")).ok()) << Catalogue::Parse(Edited("", "")).status();
  const struct {
    const char* line;
    const char* replacement;
    const char* message;
  } kCases[] = {
      {"mete/boards/1", "mete/boards/2", "schema"},
      {"    sm_count: 10\n", "", "\"sm_count\" is missing"},
      {"sm_count: 10", "sm_count: ten", "\"sm_count\" must be a whole number"},
      {"sm_count: 10", "sm_count: 0", "\"sm_count\" must be a whole number"},
      {"sm_count: 10", "sm_count: 10\n    sm_cuont: 1", "line 7: \"sm_cuont\" is not a known field"},
      {"sm_count: 10", "sm_count: 10\n    sm_count: 11", "\"sm_count\" appears twice"},
      {"architecture: ampere", "architecture: amper", "no architecture"},
      {"\"8.0\"", "\"8\"", "compute_capability"},
      {"pcie: [s]", "pcie: [t]", "no source is called \"t\""},
      {"pcie: [s], ", "", "\"pcie\" has no source"},
      {"est: [context_memory_mib]", "est: [colour]", "\"est\" names no field"},
      {"mig: false", "mig: maybe", "must be true or false"},
      {"boards:", "boards: []\nother:", "\"boards\" must be a list"},
      {"id: x1", "id: x1: y", "not valid YAML"},
  };
  for (const auto& test : kCases) {
    const auto parsed = Catalogue::Parse(Edited(test.line, test.replacement));
    ASSERT_FALSE(parsed.ok()) << test.replacement;
    EXPECT_EQ(ExitCodeFor(parsed.status()), ExitCode::kUsage);
    EXPECT_THAT(Message(parsed.status()), HasSubstr(test.message));
  }
  for (const char* text : {"", "[]", "a", "? [a]\n: b", "&a [*a]"}) EXPECT_FALSE(Catalogue::Parse(text).ok()) << text;
  EXPECT_FALSE(Catalogue::Parse(std::string(2 << 20, ' ')).ok());
}

}  // namespace
}  // namespace mete::gpu
