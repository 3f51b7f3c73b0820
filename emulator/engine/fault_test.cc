// Faults on a node in virtual time: who is hurt, what NVML reads, what heals.
#include <gmock/gmock.h>

#include <set>

#include "emulator/engine/test_node.h"

namespace mete::emulator {
namespace {

using ::testing::ElementsAre;

constexpr char kA100[] = "A100-SXM4-40GB", kT4[] = "T4";

FaultSpec Of(FaultKind kind) {
  FaultSpec spec;
  spec.kind = kind;
  return spec;
}

// Three tenants on GPU 0: two with work that never ends soon, one with nothing to do; and one on GPU 1.
struct Tenants {
  explicit Tenants(TestNode& node)
      : busy(node.AddTenant(10)), other(node.AddTenant(20)), idle(node.AddTenant(30)), far(node.AddTenant(40, 1)) {
    node.Submit(busy, node.Kernel(100.0 * kSecond));
    node.Submit(other, node.Kernel(100.0 * kSecond));
    node.Pass(1 * kMs);
  }
  std::set<uint32_t> Dead() const {
    std::set<uint32_t> dead;
    if (busy.Word() != ContextWord::kAlive) dead.insert(10);
    if (other.Word() != ContextWord::kAlive) dead.insert(20);
    if (idle.Word() != ContextWord::kAlive) dead.insert(30);
    if (far.Word() != ContextWord::kAlive) dead.insert(40);
    return dead;
  }
  TestNode::Process busy, other, idle, far;
};

TEST(XidRules, TheTableIsWholeAndAgreesWithItsOwnWords) {
  ASSERT_EQ(BuiltInXidRules().size(), 38u);
  for (const auto& [xid, rule] : BuiltInXidRules()) {
    if (rule.affected.rfind("process", 0) == 0 && xid != 44) {
      EXPECT_EQ(rule.hurts, XidRule::Hurts::kProcess) << xid;
    }
    if (rule.affected == "informational") {
      EXPECT_EQ(rule.hurts, XidRule::Hurts::kNobody) << xid;
    }
    if (rule.affected == "gpu") {
      EXPECT_EQ(rule.hurts, XidRule::Hurts::kGpu) << xid;
      EXPECT_NE(rule.need, Need::kNone) << xid;
    }
  }
}

TEST(XidRules, BadTablesAreRefusedWithTheirLine) {
  const std::string head = "schema: x\ncollected: y\nsources: {a: {doc: b}}\nxids:\n";
  const std::string row = "  - {xid: 5, mnemonic: m, meaning: n, cause: c, affected: d, action: e, ";
  EXPECT_TRUE(ReadXidRules(head + row + "hurts: nobody, needs: none, src: [a]}\n", "t").ok());
  for (const char* rest : {"hurts: everybody, needs: none, src: [a]}", "hurts: nobody, cuda: 3, needs: none, src: [a]}",
                           "hurts: gpu, needs: none, src: [a]}", "hurts: nobody, needs: none, src: [z]}",
                           "hurts: nobody, needs: none, followed: [9], src: [a]}",
                           "hurts: nobody, needs: luck, src: [a]}", "hurts: nobody, needs: none, src: [a], more: 1}"}) {
    const auto rules = ReadXidRules(head + row + rest + "\n", "t");
    ASSERT_FALSE(rules.ok()) << rest;
    EXPECT_THAT(Message(rules.status()), ::testing::HasSubstr("line")) << rest;
  }
}

TEST(Fault, EveryXidHurtsWhomItsRuleNames) {
  for (const auto& [xid, rule] : BuiltInXidRules()) {
    TestNode node("2xA100-SXM4-40GB");
    Tenants tenants(node);
    const bool of_process = rule.hurts == XidRule::Hurts::kProcess;
    ASSERT_EQ(node.Xid(xid, of_process ? 30 : 0), Result::kOk) << xid;
    std::set<uint32_t> expected;
    switch (rule.hurts) {
      case XidRule::Hurts::kNobody: break;
      case XidRule::Hurts::kProcess: expected = {30}; break;
      case XidRule::Hurts::kBusy: expected = {10, 20}; break;
      case XidRule::Hurts::kGpu: expected = {10, 20, 30}; break;
    }
    if (!rule.followed.empty()) expected = {10};  // this board confines it to whoever executes
    EXPECT_EQ(tenants.Dead(), expected) << "Xid " << xid;
    EXPECT_EQ(node.Xids().front(), xid);
  }
}

TEST(Fault, PageFaultKillsItsProcessAloneWithTheDocumentedError) {
  TestNode node("2xA100-SXM4-40GB");
  Tenants tenants(node);
  ASSERT_EQ(node.Xid(31), Result::kOk);  // of whoever executes
  EXPECT_THAT(tenants.Dead(), ElementsAre(10));
  EXPECT_EQ(tenants.busy.Xid(), 31u);
  EXPECT_EQ(tenants.busy.Error(), 700u);
  EXPECT_EQ(node.Ask(tenants.busy, MessageType::kReserveMemory, 0, 0, 1), Result::kContextDead);
  EXPECT_EQ(node.Ask(tenants.other, MessageType::kReserveMemory, 0, 0, 1), Result::kOk);
  EXPECT_EQ(node.State().health.need, Need::kNone);
  EXPECT_NE(node.AddTenant(50).context, 0u);
}

TEST(Fault, ContainedErrorSparesTheNeighboursUncontainedDoesNot) {
  for (const bool contained : {true, false}) {
    TestNode node("2xA100-SXM4-40GB");
    Tenants tenants(node);
    FaultSpec spec = Of(FaultKind::kEccUncorrectable);
    spec.reason = contained ? 0 : 1;
    ASSERT_EQ(node.Inject(spec), Result::kOk);
    if (contained) {
      EXPECT_THAT(tenants.Dead(), ElementsAre(10));
      EXPECT_THAT(node.Xids(), ElementsAre(48, 63, 94));
      EXPECT_EQ(node.State().health.remap_pending, 1u);
      EXPECT_NE(node.AddTenant(50).context, 0u);
    } else {
      EXPECT_THAT(tenants.Dead(), ElementsAre(10, 20, 30));
      EXPECT_THAT(node.Xids(), ElementsAre(48, 95));
      EXPECT_EQ(node.State().health.need, Need::kReset);
      EXPECT_EQ(node.AddTenant(50).context, 0u) << "nothing new before the reset";
      EXPECT_EQ(node.Reset(), Result::kOk);
      EXPECT_NE(node.AddTenant(60).context, 0u);
    }
    EXPECT_EQ(tenants.busy.Error(), 214u);
    EXPECT_EQ(node.State().health.ecc_aggregate.dram_uncorrected, 1u);
  }
}

TEST(Fault, BeforeAmpereADoubleBitErrorTakesEverybody) {
  TestNode node("2xT4");
  Tenants tenants(node);
  ASSERT_EQ(node.Inject(Of(FaultKind::kEccUncorrectable)), Result::kOk);
  EXPECT_THAT(tenants.Dead(), ElementsAre(10, 20, 30));
  EXPECT_EQ(node.Xid(94, 40, 1), Result::kRefused);
  EXPECT_EQ(node.Inject(Of(FaultKind::kRowRemapPending)), Result::kRefused);
}

TEST(Fault, OffTheBusIsLostUntilTheNodeIsRestarted) {
  TestNode node("2xA100-SXM4-40GB");
  Tenants tenants(node);
  ASSERT_EQ(node.Inject(Of(FaultKind::kOffBus)), Result::kOk);
  EXPECT_THAT(tenants.Dead(), ElementsAre(10, 20, 30));
  EXPECT_EQ(tenants.idle.Word(), ContextWord::kDeviceLost);
  EXPECT_THAT(node.Xids(), ElementsAre(79));
  for (const MessageType type : {MessageType::kState, MessageType::kMemoryInfo, MessageType::kProcesses,
                                 MessageType::kCreateContext, MessageType::kResetGpu}) {
    EXPECT_EQ(node.Ask(node.admin(), type), Result::kDeviceLost);
    if (type != MessageType::kResetGpu) {
      EXPECT_EQ(node.Ask(node.admin(), type, 1), Result::kOk);
    }
  }
  EXPECT_EQ(node.Xid(31, 20), Result::kDeviceLost);
  EXPECT_EQ(node.Clear(0), Result::kOk);
  EXPECT_NE(node.AddTenant(50).context, 0u);
  EXPECT_NE(tenants.idle.Word(), ContextWord::kAlive) << "what died stays dead";
}

TEST(Fault, LostWithoutAnXid) {
  TestNode node(kA100);
  ASSERT_EQ(node.Inject(Of(FaultKind::kLost)), Result::kOk);
  EXPECT_TRUE(node.Xids().empty());
  EXPECT_EQ(node.Ask(node.admin(), MessageType::kState), Result::kDeviceLost);
}

TEST(Fault, CorrectableErrorsAreCountedAndHurtNobody) {
  TestNode node("2xA100-SXM4-40GB");
  Tenants tenants(node);
  FaultSpec spec = Of(FaultKind::kEccCorrectable);
  spec.count = 3;
  ASSERT_EQ(node.Inject(spec), Result::kOk);
  EXPECT_EQ(node.State().health.ecc_volatile.dram_corrected, 3u);
  EXPECT_TRUE(tenants.Dead().empty());
  EXPECT_EQ(node.engine().EventCount(), 1u);
  EXPECT_EQ(node.Reset(), Result::kInUse);
  node.End(tenants.busy);
  node.End(tenants.other);
  node.End(tenants.idle);
  EXPECT_EQ(node.Reset(), Result::kOk);
  EXPECT_EQ(node.State().health.ecc_volatile.dram_corrected, 0u);
  EXPECT_EQ(node.State().health.ecc_aggregate.dram_corrected, 3u);
}

TEST(Fault, RemapIsPendingUntilTheResetAndAFailureStays) {
  TestNode node(kA100);
  ASSERT_EQ(node.Inject(Of(FaultKind::kRowRemapPending)), Result::kOk);
  EXPECT_EQ(node.State().health.remap_pending, 1u);
  EXPECT_EQ(node.Reset(), Result::kOk);
  EXPECT_EQ(node.State().health.remap_pending, 0u);
  EXPECT_EQ(node.State().health.rows_remapped_uncorrectable, 1u);
  ASSERT_EQ(node.Inject(Of(FaultKind::kRowRemapFailure)), Result::kOk);
  EXPECT_EQ(node.Reset(), Result::kOk);
  EXPECT_EQ(node.State().health.remap_failed, 1u);
}

TEST(Fault, HungEngineHoldsEverybodyAndAProcessOnlyItself) {
  for (const uint32_t pid : {0u, 10u}) {
    TestNode node(kA100);
    TestNode::Process hung = node.AddTenant(10), other = node.AddTenant(20);
    FaultSpec spec = Of(FaultKind::kHang);
    spec.pid = pid;
    node.Pass(kMs);
    ASSERT_EQ(node.Inject(spec), Result::kOk);
    node.Submit(hung, node.Kernel(5.0 * kMs));
    node.Submit(other, node.Kernel(5.0 * kMs));
    node.Pass(2 * kSecond);
    EXPECT_EQ(hung.Done(), 0u);
    EXPECT_EQ(other.Done(), pid == 0 ? 0u : 1u);
    EXPECT_GT(node.State().utilization_gpu, 90u) << "hung, but busy";
    EXPECT_EQ(node.Clear(), Result::kOk);
    node.Pass(kSecond);
    EXPECT_EQ(hung.Done(), 1u);
    EXPECT_EQ(other.Done(), 1u);
  }
}

// Virtual time that one kernel of this cost takes.
uint64_t LengthNs(TestNode& node, TestNode::Process& process, const Work& work) {
  const uint64_t before = process.Done(), begin = node.now();
  node.Submit(process, work);
  while (process.Done() == before) node.Pass(10'000);
  return node.now() - begin;
}

TEST(Fault, ThrottleSlowsComputingSlowMemorySlowsMemory) {
  TestNode node(kA100);
  TestNode::Process tenant = node.AddTenant(10);
  const Work computing = node.Kernel(20.0 * kMs);
  Work streaming = node.Kernel(1.0 * kMs);
  streaming.kernel.memory_bytes = 20e-3 * 1.555e12 / static_cast<double>(streaming.kernel.blocks);
  streaming.kernel.working_set_bytes = 20e9;
  const auto ratio = [&](const Work& work, uint64_t alone) {
    return static_cast<double>(LengthNs(node, tenant, work)) / static_cast<double>(alone);
  };
  const uint64_t compute_alone = LengthNs(node, tenant, computing), stream_alone = LengthNs(node, tenant, streaming);
  FaultSpec spec = Of(FaultKind::kThrottle);
  spec.factor = 0.5;
  spec.reason = kReasonThermal;
  ASSERT_EQ(node.Inject(spec), Result::kOk);
  EXPECT_NEAR(ratio(computing, compute_alone), 2.0, 0.05);
  EXPECT_NEAR(ratio(streaming, stream_alone), 1.0, 0.05);
  EXPECT_EQ(node.State().health.throttle_reasons, kReasonThermal);
  EXPECT_EQ(node.State().sm_clock_khz, 705'000u);
  ASSERT_EQ(node.Clear(), Result::kOk);
  spec = Of(FaultKind::kSlowMemory);
  spec.factor = 0.25;
  ASSERT_EQ(node.Inject(spec), Result::kOk);
  EXPECT_NEAR(ratio(computing, compute_alone), 1.0, 0.05);
  EXPECT_NEAR(ratio(streaming, stream_alone), 4.0, 0.1);
  ASSERT_EQ(node.Clear(), Result::kOk);
  EXPECT_NEAR(ratio(streaming, stream_alone), 1.0, 0.01);
  EXPECT_EQ(node.State().sm_clock_khz, 1'410'000u);
}

TEST(Fault, DriverRestartEndsEverybodyAndForgets) {
  TestNode node("2xA100-SXM4-40GB");
  Tenants tenants(node);
  ASSERT_EQ(node.Ask(node.admin(), MessageType::kSetComputeMode, 0, 3), Result::kOk);
  ASSERT_EQ(node.Ask(node.admin(), MessageType::kSetTimeSlice, 0, 2), Result::kOk);
  ASSERT_EQ(node.Inject(Of(FaultKind::kDriverRestart)), Result::kOk);
  EXPECT_THAT(tenants.Dead(), ElementsAre(10, 20, 30, 40));
  EXPECT_EQ(node.engine().TakeBroken().size(), 4u) << "all but the one that asked";
  node.End(tenants.idle);  // as the server does; whoever waits must not take it for success
  EXPECT_EQ(tenants.idle.Word(), ContextWord::kDeviceLost);
  EXPECT_EQ(node.State().compute_mode, 0u);
  EXPECT_EQ(node.State().time_slice_class, 0u);
  EXPECT_NE(node.AddTenant(50).context, 0u);
}

TEST(Fault, OnlyTheOwnerMay) {
  TestNode node(kA100);
  const TestNode::Process stranger = node.AddTenant(10);
  FaultSpec spec;
  spec.xid = 79;
  EXPECT_EQ(node.Inject(spec, &stranger), Result::kNotOwner);
  EXPECT_EQ(node.Ask(stranger, MessageType::kClearFaults, kAllGpus), Result::kNotOwner);
  EXPECT_EQ(node.Ask(stranger, MessageType::kResetGpu), Result::kNotOwner);
  EXPECT_EQ(node.Ask(stranger, MessageType::kSetTimeSlice, 0, 1), Result::kNotOwner);
  EXPECT_EQ(stranger.Word(), ContextWord::kAlive);
}

TEST(Fault, NonsenseIsRefused) {
  TestNode node(kT4);
  EXPECT_EQ(node.Xid(31), Result::kRefused) << "nobody is there";
  EXPECT_EQ(node.Xid(31, 99), Result::kNoSuchObject);
  EXPECT_EQ(node.Xid(1), Result::kNoSuchObject);
  EXPECT_EQ(node.Xid(79, 0, 5), Result::kNoSuchObject);
  FaultSpec spec = Of(static_cast<FaultKind>(99));
  EXPECT_EQ(node.Inject(spec), Result::kRefused);
  spec = Of(FaultKind::kSlowMemory);
  spec.factor = 0;
  EXPECT_EQ(node.Inject(spec), Result::kRefused);
  spec.factor = std::nan("");
  EXPECT_EQ(node.Inject(spec), Result::kRefused);
  spec = Of(FaultKind::kLost);
  spec.probability = std::nan("");
  EXPECT_EQ(node.Inject(spec), Result::kRefused);
  EXPECT_EQ(node.Clear(0, 12345), Result::kNoSuchObject);
}

TEST(Fault, LaterHappensAtItsInstant) {
  TestNode node(kA100);
  TestNode::Process tenant = node.AddTenant(10);
  for (int i = 0; i < 100; ++i) node.Submit(tenant, node.Kernel(10.0 * kMs));
  FaultSpec spec;
  spec.xid = 79;
  spec.after_ns = 500 * kMs;
  uint64_t id = 0;
  ASSERT_EQ(node.Inject(spec, nullptr, &id), Result::kOk);
  EXPECT_EQ(node.engine().NextEventNs().has_value(), true);
  node.Pass(2 * kSecond);  // a late engine
  EXPECT_EQ(tenant.Word(), ContextWord::kDeviceLost);
  EXPECT_NEAR(static_cast<double>(tenant.Done()), 49, 1) << "what was done before the fault, and nothing after it";
  EXPECT_EQ(node.Clear(kAllGpus, id), Result::kOk);
}

TEST(Fault, ArmedFaultCanBeTakenBack) {
  TestNode node(kA100);
  FaultSpec spec;
  spec.xid = 79;
  spec.after_ns = kSecond;
  uint64_t id = 0;
  ASSERT_EQ(node.Inject(spec, nullptr, &id), Result::kOk);
  ASSERT_EQ(node.Clear(kAllGpus, id), Result::kOk);
  node.Pass(3 * kSecond);
  EXPECT_EQ(node.State().health.lost, 0u);
}

TEST(Fault, ProbabilityIsPerSecondAndRepeatsBySeed) {
  const auto count = [](uint64_t seed, double probability) {
    TestNode node(kA100);
    FaultSpec spec = Of(FaultKind::kEccCorrectable);
    spec.probability = probability;
    spec.seed = seed;
    EXPECT_EQ(node.Inject(spec), Result::kOk);
    for (int i = 0; i < 2000; ++i) node.Pass(kSecond);
    return node.State().health.ecc_volatile.dram_corrected;
  };
  // 2000 seconds at -ln(1 - 0.1) = 0.105 a second: 211, give or take three standard deviations.
  EXPECT_NEAR(static_cast<double>(count(1, 0.1)), 211, 44);
  EXPECT_EQ(count(1, 0.1), count(1, 0.1));
  EXPECT_NE(count(1, 0.1), count(2, 0.1));
  EXPECT_EQ(count(1, 1), 2000u);
}

TEST(Fault, KilledProcessWithWorkLeavesXid45) {
  TestNode node("2xA100-SXM4-40GB");
  Tenants tenants(node);
  node.End(tenants.idle);
  EXPECT_TRUE(node.Xids().empty());
  node.End(tenants.busy);
  EXPECT_THAT(node.Xids(), ElementsAre(45));
  EXPECT_TRUE(tenants.Dead().count(20) == 0);
}

TEST(Fault, TimeSliceClassGoesToContextsMadeAfterwards) {
  TestNode node(kA100);
  const auto switches = [&](uint32_t slice) {
    EXPECT_EQ(node.Ask(node.admin(), MessageType::kSetTimeSlice, 0, slice), Result::kOk);
    TestNode::Process a = node.AddTenant(10), b = node.AddTenant(20);
    node.Submit(a, node.Kernel(1.0 * kSecond));
    node.Submit(b, node.Kernel(1.0 * kSecond));
    const uint64_t before = node.engine().SwitchesOf(0);
    node.Pass(kSecond);
    node.End(a);
    node.End(b);
    return static_cast<double>(node.engine().SwitchesOf(0) - before);
  };
  const double normal = switches(0), brief = switches(1), longest = switches(3);
  EXPECT_NEAR(brief / normal, 2, 0.1);
  EXPECT_NEAR(normal / longest, 4, 0.2);
  EXPECT_EQ(node.State().time_slice_class, 3u);
  EXPECT_EQ(node.Ask(node.admin(), MessageType::kSetTimeSlice, 0, 4), Result::kRefused);
}

// --- The same measurements with a rule left out: they must notice ------------------------------------------------

TEST(WithoutRule, FaultSpread) {
  TestNode node("2xA100-SXM4-40GB", {.fault_spread = true});
  Tenants tenants(node);
  ASSERT_EQ(node.Xid(95), Result::kOk);
  EXPECT_THAT(tenants.Dead(), ElementsAre(10)) << "with the rule all three of the GPU are dead";
}

TEST(WithoutRule, MemoryLimit) {
  for (const bool without : {false, true}) {
    TestNode node(kA100, {.memory_limit = without});
    const TestNode::Process tenant = node.AddTenant(10);
    const uint64_t all = node.engine().settings().gpus[0].info.memory_bytes;
    EXPECT_EQ(node.Ask(tenant, MessageType::kReserveMemory, 0, 0, all / 2), Result::kOk);
    EXPECT_EQ(node.Ask(tenant, MessageType::kReserveMemory, 0, 0, all / 2),
              without ? Result::kOk : Result::kOutOfMemory);
  }
}

}  // namespace
}  // namespace mete::emulator
