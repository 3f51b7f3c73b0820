#include "cli/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/quantities.h"
#include "base/text.h"
#include "cli/golden.h"
#include "nvml/fake.h"

namespace mete::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TopShare ShareOf(const std::string& name, uint64_t quota, uint64_t used) {
  TopShare share;
  share.name = name;
  share.quota_bytes = quota;
  share.used_bytes = used;
  share.mode = "hard";
  return share;
}

Json PartOf(const std::string& uuid, uint64_t quota, bool asked, uint64_t used) {
  return {
      {"uuid", uuid},
      {"quota_bytes", quota},
      {"quota_asked", asked},
      {"used_bytes", used},
      {"compute", {{"mode", "hard"}, {"percent", 30.0}, {"measured_percent", 29.5}, {"measured_over_seconds", 8.2}}},
      {"promises",
       {{{"promise", "memory-quota"}, {"asked", true}, {"kept", false}},
        {{"promise", "compute-cap"}, {"asked", true}, {"kept", true}},
        {{"promise", "enforced-outside"}, {"asked", false}, {"kept", false}}}}};
}

class TopTest : public ::testing::Test {
 protected:
  TopTest() {
    for (int i = 0; i < 2; ++i) library_.Add().memory = {{40 * kGiB}, {0}, {i == 0 ? 10 * kGiB : 0}, {30 * kGiB}};
    const auto uuid = [this](size_t i) { return library_.devices[i]->uuid_value; };
    Json loose = PartOf(uuid(0), 40 * kGiB, false, 2 * kGiB);
    loose["compute"] = {{"mode", "work-conserving"}};
    list_["shares"] = {{{"name", "b"}, {"processes", 0}, {"gpus", {PartOf(uuid(0), 20 * kGiB, true, 0)}}},
                       {{"name", "a"}, {"processes", 3}, {"gpus", {PartOf(uuid(0), 8 * kGiB, true, 4 * kGiB)}}},
                       {{"name", "loose"}, {"processes", 1}, {"gpus", {loose}}}};
    list_["foreign"] = {{{"gpu", 1}, {"pid", 42}, {"program", "python3"}, {"used_bytes", 4 * kGiB}}};
  }
  Top Now() { return TakeTop(library_, list_).value(); }

  nvml::FakeLibrary library_;
  Json list_;
};

TEST_F(TopTest, PutsSharesAndOthersOnTheirGpus) {
  const Top top = Now();
  ASSERT_EQ(top.gpus.size(), 2u);
  ASSERT_EQ(top.gpus[0].shares.size(), 3u);
  EXPECT_EQ(top.gpus[0].shares[0].name, "a") << "sorted by name";
  EXPECT_EQ(top.gpus[0].shares[0].broken, std::vector<std::string>{"memory-quota"}) << "asked for and not kept";
  EXPECT_FALSE(top.gpus[0].shares[2].percent.has_value());
  EXPECT_EQ(top.gpus[0].PromisedBytes(), 28 * kGiB);
  EXPECT_EQ(top.gpus[0].FreeBytes(), 10 * kGiB) << "what is promised, and what a cap's share holds";
  ASSERT_EQ(top.gpus[1].foreigners.size(), 1u);
  EXPECT_EQ(top.gpus[1].FreeBytes(), 36 * kGiB);
}

TEST_F(TopTest, Text) { ExpectGolden("top.txt", TopText(Now(), 90, Glyphs::kUnicode)); }

TEST_F(TopTest, NarrowText) {
  const std::string text = TopText(Now(), 40, Glyphs::kUnicode);
  ExpectGolden("top_narrow.txt", text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(DisplayWidth(line), 40u) << line;
}

TEST_F(TopTest, Json) {
  const auto json = TopJson(Now());
  const auto& gpu = json.at("gpus").at(0);
  EXPECT_EQ(gpu.at("promised_bytes"), 28 * kGiB);
  EXPECT_EQ(gpu.at("shares").at(0).at("measured_percent"), 29.5);
  EXPECT_EQ(gpu.at("shares").at(0).at("measured_over_seconds"), 8.2);
  EXPECT_TRUE(gpu.at("shares").at(1).at("measured_percent").is_null()) << "nobody is there to use it";
  EXPECT_TRUE(gpu.at("shares").at(2).at("percent").is_null());
  EXPECT_EQ(json.at("gpus").at(1).at("without_share").at(0).at("pid"), 42);
}

TEST_F(TopTest, AGpuThatDoesNotAnswerSaysSo) {
  library_.devices[1]->failure = Fault("GPU 1: has fallen off the bus");
  const std::string text = TopText(Now(), 80, Glyphs::kAscii);
  EXPECT_THAT(text, HasSubstr("GPU 1: has fallen off the bus"));
  EXPECT_TRUE(TopJson(Now()).at("gpus").at(1).at("total_bytes").is_null());
}

TEST_F(TopTest, WithoutGpusItSaysWhereToLook) {
  EXPECT_EQ(ExitCodeFor(TakeTop(nvml::FakeLibrary(), list_).status()), ExitCode::kLacks);
}

TEST_F(TopTest, AStripIsAsLongAsAskedWhateverIsOnIt) {
  TopGpu gpu;
  gpu.memory = nvml::MemoryUse{{10 * kGiB}, {0}, {0}, {10 * kGiB}};
  for (const size_t count : {0, 1, 3, 30, 300}) {
    for (const uint64_t quota : {uint64_t{0}, uint64_t{1}, kMiB, kGiB, 100 * kGiB}) {
      gpu.shares.assign(count, ShareOf("a-rather-long-name", quota, 3 * kGiB));
      for (const size_t width : {3, 4, 10, 57, 100}) {
        for (const Glyphs glyphs : {Glyphs::kAscii, Glyphs::kUnicode}) {
          const Strip strip = StripOf(gpu, width, glyphs);
          EXPECT_EQ(DisplayWidth(strip.cells), width) << count << " " << quota;
          EXPECT_LE(DisplayWidth(strip.names), width);
        }
      }
    }
  }
}

TEST_F(TopTest, AStripShowsWhatIsUsedKeptAndFree) {
  TopGpu gpu;
  gpu.memory = nvml::MemoryUse{{40 * kGiB}, {0}, {0}, {40 * kGiB}};
  gpu.shares = {ShareOf("a", 10 * kGiB, 5 * kGiB), ShareOf("b", 20 * kGiB, 20 * kGiB)};
  EXPECT_EQ(StripOf(gpu, 42, Glyphs::kAscii).cells, "|#####----|###################|..........|");
  EXPECT_EQ(StripOf(gpu, 42, Glyphs::kAscii).names, " a         b                   free");
  gpu.foreigners = {{7, "x", 4 * kGiB}};
  EXPECT_EQ(StripOf(gpu, 42, Glyphs::kAscii).cells, "|#####----|###################|xxxx......|");
  EXPECT_THAT(StripOf(gpu, 42, Glyphs::kUnicode).cells, Not(HasSubstr("#")));
}

TEST_F(TopTest, MigInstancesStandWhereTheyAre) {
  nvml::FakeDevice& gpu = *library_.devices[0];
  gpu.mig = {nvml::MigMode::kEnabled, nvml::MigMode::kEnabled};
  nvml::GpuInstance one, other;
  one.profile_id = 19;  // 1g.5gb
  one.start = 2;
  one.size = 1;
  other.profile_id = 9;  // 3g.20gb
  other.start = 4;
  other.size = 4;
  gpu.instances = {other, one};
  Json part = PartOf(gpu.uuid_value, 20 * kGiB, true, 10 * kGiB);
  part["instance"] = {{"profile", "3g.20gb"}, {"start", 4}, {"size", 4}, {"uuid", "MIG-1"}};
  list_["shares"] = {{{"name", "team"}, {"processes", 1}, {"gpus", {part}}}};
  const Top top = Now();
  const Strip strip = StripOf(top.gpus[0], 34, Glyphs::kAscii);
  EXPECT_EQ(strip.cells, "|........xxx|....########-------||");
  EXPECT_EQ(strip.names, "         1g.     team");
  EXPECT_THAT(TopText(top, 80, Glyphs::kAscii), HasSubstr("team"));
}

}  // namespace
}  // namespace mete::cli
