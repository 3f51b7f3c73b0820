#include "mechanism/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::mechanism {
namespace {

using gpu::Promise;
using nvml::MigMode;
using testing::HasSubstr;

// The facts that a node with this board and MIG off would report.
GpuFacts FactsOf(const gpu::Board& board) {
  GpuFacts facts;
  facts.name = board.nvml_name;
  facts.board = &board;
  facts.capability = {board.compute_major, board.compute_minor};
  const MigMode mode = board.mig ? MigMode::kDisabled : MigMode::kNotCapable;
  facts.mig = {mode, mode};
  facts.driver_major = 580;
  return facts;
}

GpuFacts Facts(std::string_view board) { return FactsOf(*gpu::Catalogue::BuiltIn().Find(board).value()); }

VariantHere Here(const GpuFacts& facts, std::string_view variant) {
  for (VariantHere& here : ProbeGpu(facts)) {
    if (here.variant->name == variant) return std::move(here);
  }
  ADD_FAILURE() << "no variant " << variant;
  return {};
}

Keeps KeepsHere(const GpuFacts& facts, std::string_view variant, Promise promise) {
  return Here(facts, variant).promises[static_cast<size_t>(promise)].keeps;
}

TEST(Probe, EveryBoardGetsOneAnswerForEveryVariant) {
  for (const gpu::Board& board : gpu::Catalogue::BuiltIn().boards()) {
    const auto all = ProbeGpu(FactsOf(board));
    EXPECT_EQ(all.size(), gpu::PromiseTable::BuiltIn().variants().size());
    for (const VariantHere& here : all) {
      EXPECT_TRUE(here.standing != Standing::kNotPossible || !here.why.empty()) << board.id << here.variant->name;
      EXPECT_EQ(here.promises.size(), gpu::kPromiseCount);
      const bool mig = here.variant->mechanism == gpu::Mechanism::kMig;
      EXPECT_TRUE(!mig || (here.standing == Standing::kNotPossible) != board.mig) << board.id;
    }
  }
}

TEST(Probe, VoltaAndTuringHaveNoMigAndNoPartitions) {
  const auto t4 = Here(Facts("T4"), "mig");
  EXPECT_EQ(t4.standing, Standing::kNotPossible);
  EXPECT_EQ(t4.why, "it has no MIG (compute capability 7.5 < 8.0)");
  EXPECT_EQ(Here(Facts("V100-SXM2-32GB"), "mig").why, "it has no MIG (compute capability 7.0 < 8.0)");
  EXPECT_EQ(Here(Facts("T4"), "mps-static-partitions").why,
            "static partitions need Ampere or newer: compute capability 7.5 < 8.0");
  EXPECT_EQ(Here(Facts("T4"), "mps-limits").standing, Standing::kNotBuilt);
  EXPECT_EQ(Here(Facts("T4"), "intercept").standing, Standing::kSupported);
}

TEST(Probe, AmpereAndAdaWithoutMigSayThatTheBoardLacksIt) {
  for (const char* board : {"A10", "L4", "L40S", "L20"}) {
    EXPECT_EQ(Here(Facts(board), "mig").why, "it has no MIG (not built into this board)") << board;
  }
}

TEST(Probe, MigBoardsSayWhatSwitchingNeeds) {
  EXPECT_EQ(Here(Facts("A100-SXM4-40GB"), "mig").why, "MIG is off: switching it on needs an idle GPU and a reset");
  EXPECT_EQ(Here(Facts("H100 PCIe"), "mig").why, "MIG is off: switching it on needs an idle GPU");
  GpuFacts pending = Facts("A30");
  pending.mig.pending = MigMode::kEnabled;
  EXPECT_THAT(Here(pending, "mig").why, HasSubstr("waits for a reset"));
}

TEST(Probe, ADriverThatDoesNotOfferMigIsNamed) {
  GpuFacts facts = Facts("H100 80GB HBM3");
  facts.mig = {MigMode::kNotCapable, MigMode::kNotCapable};
  facts.driver_major = 510;
  EXPECT_EQ(Here(facts, "mig").why, "driver 510 does not offer the MIG that the board has");
}

TEST(Probe, MigOnRulesOutWhatSharesWholeGpus) {
  GpuFacts facts = Facts("A100-SXM4-40GB");
  facts.mig = {MigMode::kEnabled, MigMode::kEnabled};
  for (const char* variant : {"exclusive", "time-slicing", "intercept"}) {
    EXPECT_EQ(Here(facts, variant).standing, Standing::kNotPossible) << variant;
    EXPECT_THAT(Here(facts, variant).why, HasSubstr("MIG is on")) << variant;
  }
  EXPECT_EQ(Here(facts, "mig").standing, Standing::kSupported);
  EXPECT_EQ(Here(facts, "mig").why, "MIG is on");
}

TEST(Probe, VgpuNeedsTheBoardAndTheHostDriver) {
  GpuFacts facts = Facts("A100-SXM4-40GB");
  EXPECT_THAT(Here(facts, "vgpu-fixed-share").why, HasSubstr("no vGPU host driver"));
  facts.vgpu_host_driver = true;
  EXPECT_EQ(Here(facts, "vgpu-fixed-share").standing, Standing::kNotBuilt);
  GpuFacts t4 = Facts("T4");
  t4.vgpu_host_driver = true;
  EXPECT_EQ(Here(t4, "vgpu-equal-share").standing, Standing::kNotBuilt);
  EXPECT_THAT(Here(t4, "vgpu-mig-backed").why, HasSubstr("no MIG"));
  facts.mig = {MigMode::kEnabled, MigMode::kEnabled};
  EXPECT_THAT(Here(facts, "vgpu-fixed-share").why, HasSubstr("only MIG-backed"));
  EXPECT_EQ(Here(facts, "vgpu-mig-backed").standing, Standing::kNotBuilt);
}

TEST(Probe, ABoardThatNobodyKnowsStillGetsWhatItsCapabilityAllows) {
  GpuFacts facts;
  facts.name = "NVIDIA Z9";
  facts.capability = {11, 0};
  EXPECT_EQ(Here(facts, "intercept").standing, Standing::kSupported);
  EXPECT_EQ(Here(facts, "vgpu-best-effort").why, "\"NVIDIA Z9\" is not in the board catalogue");
  facts.capability = {3, 0};
  EXPECT_EQ(Here(facts, "mps").why, "compute capability 3.0 < 3.5");
}

TEST(Probe, PromisesAreJudgedOnThisGpu) {
  const GpuFacts a100 = Facts("A100-SXM4-40GB");
  EXPECT_EQ(KeepsHere(a100, "intercept", Promise::kComputeCap), Keeps::kWhileInForce);
  EXPECT_EQ(KeepsHere(a100, "intercept", Promise::kMemoryQuota), Keeps::kWhileAllGranted);
  EXPECT_EQ(KeepsHere(a100, "intercept", Promise::kMemoryPrivacy), Keeps::kAlways);
  EXPECT_EQ(KeepsHere(a100, "intercept", Promise::kFaultContainment), Keeps::kNot);
  EXPECT_EQ(KeepsHere(a100, "intercept", Promise::kEnforcedOutside), Keeps::kNot);
  EXPECT_EQ(KeepsHere(a100, "mps", Promise::kMemoryPrivacy), Keeps::kAlways);
  EXPECT_EQ(KeepsHere(a100, "exclusive", Promise::kRecovery), Keeps::kNot);
  EXPECT_EQ(KeepsHere(Facts("A100-PCIE-40GB"), "exclusive", Promise::kRecovery), Keeps::kAlways);
  EXPECT_EQ(KeepsHere(Facts("H100 80GB HBM3"), "exclusive", Promise::kRecovery), Keeps::kAlways);
  GpuFacts pascal = a100;
  pascal.capability = {6, 0};
  EXPECT_EQ(KeepsHere(pascal, "mps", Promise::kMemoryPrivacy), Keeps::kNot);
}

TEST(Probe, DriverMajorOfAnyText) {
  EXPECT_EQ(DriverMajor("580.65.06"), 580);
  EXPECT_EQ(DriverMajor("470"), 470);
  EXPECT_EQ(DriverMajor(""), 0);
  EXPECT_EQ(DriverMajor("-1.2"), 0);
  EXPECT_EQ(DriverMajor("r580"), 0);
}

}  // namespace
}  // namespace mete::mechanism
