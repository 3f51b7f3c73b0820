#include "emulator/engine/boards.h"

#include <gmock/gmock.h>

#include <set>

#include "gpu/catalogue.h"

namespace mete::emulator {
namespace {

TEST(GpusByName, KnowsEveryBoardOfTheCatalogue) {
  for (const gpu::Board& board : gpu::Catalogue::BuiltIn().boards()) {
    const auto gpus = GpusByName(board.id, "/node");
    ASSERT_TRUE(gpus.ok()) << board.id << ": " << gpus.status();
    const GpuInfo& info = gpus->front().info;
    EXPECT_STREQ(info.board, board.id.c_str());
    EXPECT_GT(info.clock_khz, 0u);
    EXPECT_LT(info.reserved_bytes, info.memory_bytes / 10) << board.id;
    EXPECT_LE(info.shared_bytes_per_block_optin, info.shared_bytes_per_sm);
    // Two transfers per clock over the bus is what the board's bandwidth is made of (GDDR: more).
    const double clock_bound = 2e3 * info.memory_clock_khz * info.memory_bus_bits / 8;
    EXPECT_GT(static_cast<double>(info.memory_bytes_per_s), 0.8 * clock_bound) << board.id;
    EXPECT_GT(gpus->front().model.pcie_bytes_per_s, 1e9);
  }
}

TEST(GpusByName, ReadsListsAndCounts) {
  const auto gpus = GpusByName("A100-SXM4-40GB, 2xT4", "/node");
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 3u);
  EXPECT_STREQ((*gpus)[2].info.board, "t4");
  EXPECT_EQ((*gpus)[2].info.minor, 2u);
  std::set<std::string> uuids, buses;
  for (const auto& gpu : *gpus) {
    uuids.insert(UuidText(gpu.info.uuid));
    buses.insert(gpu.info.pci_bus_id);
  }
  EXPECT_EQ(uuids.size(), 3u);
  EXPECT_EQ(buses.size(), 3u);
  EXPECT_THAT(*uuids.begin(), ::testing::MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-4[0-9a-f]+-[89ab][0-9a-f]+-[0-9a-f]+"));
}

TEST(GpusByName, UuidsArePerNodeAndStay) {
  const auto once = GpusByName("T4", "/a"), again = GpusByName("T4", "/a"), elsewhere = GpusByName("T4", "/b");
  EXPECT_EQ(UuidText(once->front().info.uuid), UuidText(again->front().info.uuid));
  EXPECT_NE(UuidText(once->front().info.uuid), UuidText(elsewhere->front().info.uuid));
}

TEST(GpusByName, RefusesWhatIsWrong) {
  for (const char* names : {"", ",", "T4,", "A1000", "0xT4", "17xT4", "9xT4,9xT4", "99999999999xT4", "xT4"}) {
    const auto gpus = GpusByName(names, "/node");
    EXPECT_EQ(ExitCodeFor(gpus.status()), ExitCode::kUsage) << names;
  }
}

TEST(FindDriver, ByBranchOrVersion) {
  EXPECT_EQ(FindDriver("580")->cuda, 13000u);
  EXPECT_EQ(FindDriver("580.65.06")->branch, 580);
  EXPECT_EQ(ExitCodeFor(FindDriver("390").status()), ExitCode::kUsage);
}

}  // namespace
}  // namespace mete::emulator
