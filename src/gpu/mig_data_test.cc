// Keeps data/mig.yaml true to its own rules and to the board catalogue, and the reader true to the table.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "gpu/catalogue.h"
#include "gpu/mig.h"
#include "gpu/yaml_reader.h"

namespace mete::gpu {
namespace {

std::string ReadData(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(METE_DATA_FOLDER) + "/" + name).rdbuf();
  return text.str();
}

struct Limits {
  int64_t memory_slices, compute_slices, instances, memory_mib, sms;
};

void CheckComputeInstances(YamlMap& profile, const std::string& where, int64_t slices, int64_t sms,
                           YamlProblem& problem) {
  for (const YAML::Node& node : profile.List("compute_instances")) {
    YamlMap instance(node, problem);
    instance.Text("name");
    instance.Number("profile_id", 0, 20);
    instance.Text("nvml_enum");
    const int64_t own_slices = instance.Number("compute_slices", 1, slices);
    const int64_t count = instance.Number("max_instances", 1, 7);
    const int64_t own_sms = instance.Has("sm_count") ? instance.Number("sm_count", 1, sms) : 1;
    EXPECT_LE(own_sms * count, sms) << where;
    std::set<int64_t> taken;
    for (const std::string& start : instance.Names("starts")) {
      EXPECT_LE(std::stoll(start) + own_slices, slices) << where;
      taken.insert(std::stoll(start));
    }
    EXPECT_GE(taken.size(), static_cast<size_t>(count)) << where;
    instance.Finish();
  }
}

void CheckProfile(const YAML::Node& node, const std::string& board, const Limits& limits, YamlProblem& problem) {
  YamlMap profile(node, problem);
  const std::string where = board + " " + profile.Text("name");
  profile.Number("nsmi_profile_id", 0, 100);
  profile.Text("nvml_enum");
  profile.Number("nvml_enum_value", 0, 17);
  const int64_t compute = profile.Number("compute_slices", 1, limits.compute_slices);
  const int64_t memory = profile.Number("memory_slices", 1, limits.memory_slices);
  EXPECT_LE(profile.Number("memory_mib", 1, limits.memory_mib), limits.memory_mib) << where;
  const int64_t sms = profile.Has("sm_count") ? profile.Number("sm_count", 1, limits.sms) : limits.sms;
  profile.Number("copy_engines", 0, 20);
  YamlMap engines = profile.Map("engines");
  for (const char* engine : {"decoder", "encoder", "jpeg", "ofa"}) engines.Number(engine, 0, 20);
  engines.Finish();
  if (profile.Has("graphics")) profile.Flag("graphics");
  const int64_t count = profile.Number("max_instances", 1, limits.instances);
  EXPECT_LE(count * compute, limits.compute_slices) << where;
  std::set<int64_t> starts;
  for (const YAML::Node& item : profile.List("placements")) {
    YamlMap placement(item, problem);
    const int64_t start = placement.Number("start", 0, limits.memory_slices - 1);
    EXPECT_EQ(placement.Number("size", 1, limits.memory_slices), memory) << where;
    EXPECT_LE(start + memory, limits.memory_slices) << where;
    EXPECT_TRUE(starts.insert(start).second) << where;
    placement.Finish();
  }
  EXPECT_GE(starts.size(), static_cast<size_t>(count)) << where;
  CheckComputeInstances(profile, where, compute, sms, problem);
  if (profile.Has("est")) profile.Names("est");
  profile.NamesOrNone("also_seen_as");
  profile.Finish();
}

TEST(MigData, EveryTableFollowsTheRules) {
  const std::string text = ReadData("mig.yaml");
  const auto document = LoadYaml(text, "mig");
  ASSERT_TRUE(document.ok()) << document.status();
  YamlProblem problem("mig");
  YamlMap root(*document, problem);
  EXPECT_EQ(root.Text("schema"), "mete/mig/1");
  const Sources sources = ReadSources(root, problem);
  YamlMap boards = root.Map("boards");
  for (const Board& board : Catalogue::BuiltIn().boards()) {
    EXPECT_EQ(boards.Has(board.id), board.mig) << board.id;
    if (!board.mig) continue;
    YamlMap table = boards.Map(board.id);
    const Limits limits{table.Number("memory_slices", 1, 16), table.Number("compute_slices", 1, 8),
                        table.Number("max_gpu_instances", 1, 8), static_cast<int64_t>(board.memory.count / kMiB),
                        board.sm_count};
    table.Take("gi_id_base");
    YamlMap src = table.Map("src");
    for (const std::string& field : src.Keys()) CheckSources(src.Names(field), sources, src.node(), problem);
    for (const YAML::Node& profile : table.List("gpu_instance_profiles"))
      CheckProfile(profile, board.id, limits, problem);
    table.Finish();
  }
  boards.Finish();
  EXPECT_TRUE(problem.ok()) << problem.status();
}

TEST(MigData, IsReadAsItStands) {
  const MigTables& tables = MigTables::BuiltIn();
  EXPECT_EQ(tables.Find("t4"), nullptr);
  const MigBoard* board = tables.Find("a100-sxm4-40gb");
  ASSERT_NE(board, nullptr);
  const MigProfile* profile = board->Find("3G.20GB");
  ASSERT_NE(profile, nullptr);
  EXPECT_EQ(board->FindById(9), profile);
  EXPECT_EQ(profile->memory.count, 19968 * kMiB);
  EXPECT_EQ(profile->starts, (std::vector<int>{0, 4}));
  EXPECT_EQ(profile->compute.back().name, "3g.20gb");
  EXPECT_EQ(board->InstanceId(*profile, 4), 2u);
  EXPECT_EQ(board->InstanceId(*board->Find("1g.5gb"), 6), 13u);
  EXPECT_EQ(board->Find("9g.90gb"), nullptr);
  EXPECT_EQ(tables.Find("a100-sxm4-80gb")->Find("7g.79gb"), tables.Find("a100-sxm4-80gb")->Find("7g.80gb"));
}

TEST(MigData, ABrokenTableIsRefusedWhole) {
  std::string text = ReadData("mig.yaml");
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"{start: 0, size: 1}", "{start: 0, size: 2}"},
                                                        {"nsmi_profile_id: 21", "nsmi_profile_id: 14"},
                                                        {"gi_id_base: {4: 0, 2: 1, 1: 3}", "gi_id_base: {4: 0, 2: 1}"},
                                                        {"names: [mig-guide, mig-parted]", "names: [nobody]"},
                                                        {"starts: [0, 1]", "starts: [0, 2]"},
                                                        {"copy_engines: 1", "copy_engine: 1"}}) {
    std::string broken = text;
    ASSERT_NE(broken.find(from), std::string::npos) << from;
    broken.replace(broken.find(from), from.size(), to);
    EXPECT_EQ(ExitCodeFor(MigTables::Parse(broken).status()), ExitCode::kUsage) << from;
  }
}

}  // namespace
}  // namespace mete::gpu
