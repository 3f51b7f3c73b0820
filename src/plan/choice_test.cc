#include "plan/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::plan {
namespace {

using gpu::Mechanism;
using gpu::Promise;
using ::testing::HasSubstr;
using Verdict = Reason::Verdict;

// What every mechanism can here, by the promise table: all built, conditions as on a plain node.
std::vector<WayView> Ways(const std::map<Mechanism, std::string>& impossible) {
  std::vector<WayView> ways;
  for (const gpu::Variant& variant : gpu::PromiseTable::BuiltIn().variants()) {
    WayView way;
    way.variant = &variant;
    const bool built = variant.mechanism != Mechanism::kMps && variant.mechanism != Mechanism::kVgpu;
    way.standing = built ? WayView::Standing::kSupported : WayView::Standing::kNotBuilt;
    if (const auto why = impossible.find(variant.mechanism); why != impossible.end()) {
      way.standing = WayView::Standing::kNotPossible;
      way.why = why->second;
    }
    for (const Promise promise : gpu::Promises()) {
      const gpu::Verdict& verdict = variant.Of(promise);
      Keeps keeps = verdict.value == gpu::Value::kYes       ? Keeps::kAlways
                    : verdict.value == gpu::Value::kCapOnly ? Keeps::kWhileAllGranted
                                                            : Keeps::kNot;
      if (verdict.condition == gpu::Condition::kInForce) keeps = Keeps::kWhileInForce;
      way.promises.push_back({promise, keeps, verdict.why});
    }
    ways.push_back(way);
  }
  return ways;
}

GpuView A100(uint32_t index = 0, bool mig_on = true) {
  GpuView view;
  view.occupancy.index = index;
  view.occupancy.uuid = fmt::format("GPU-a000000{}-0000-0000-0000-000000000000", index);
  view.occupancy.name = "NVIDIA A100-SXM4-40GB";
  view.occupancy.total = Bytes{40 * kGiB};
  view.occupancy.reserved = Bytes{kGiB / 2};
  view.occupancy.mig_enabled = mig_on;
  view.mig = gpu::MigTables::BuiltIn().Find("a100-sxm4-40gb");
  view.mig_needs_reset = true;
  const std::string on = "MIG is on";
  view.ways = mig_on ? Ways({{Mechanism::kIntercept, on},
                             {Mechanism::kTimeSlicing, on + ": time slices have no effect"},
                             {Mechanism::kExclusive, on}})
                     : Ways({});
  return view;
}

GpuView T4(uint32_t index = 0) {
  GpuView view;
  view.occupancy.index = index;
  view.occupancy.uuid = fmt::format("GPU-b000000{}-0000-0000-0000-000000000000", index);
  view.occupancy.name = "Tesla T4";
  view.occupancy.total = Bytes{15 * kGiB};
  view.ways = Ways({{Mechanism::kMig, "it has no MIG (compute capability 7.5 < 8.0)"}});
  return view;
}

Ask Wants(std::vector<Promise> need, std::optional<uint64_t> gib = {}) {
  Ask ask;
  ask.request.share = "a";
  ask.need = std::move(need);
  if (gib) ask.request.memory = Bytes{*gib * kGiB};
  return ask;
}

const Reason& Chosen(const Choice& choice) { return choice.reasons[choice.chosen.at(0)]; }

TEST(Choice, TakesTheCheapestThatKeepsWhatIsAsked) {
  const Choice plain = Choose(Wants({}, 8), {A100(0, false), T4(1)});
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  EXPECT_EQ(plain.mechanism, Mechanism::kIntercept);
  EXPECT_EQ(Chosen(plain).gpu, 1u) << "the GPU that is left with the least";
  EXPECT_EQ(Chosen(plain).promises[0].holds, PromiseReason::Holds::kLiftedByBook);

  const Choice outside = Choose(Wants({Promise::kEnforcedOutside}), {T4()});
  ASSERT_TRUE(outside.status.ok()) << outside.status;
  EXPECT_EQ(outside.mechanism, Mechanism::kTimeSlicing);
  // Every GPU × variant is accounted for.
  EXPECT_EQ(plain.reasons.size(), 2 * gpu::PromiseTable::BuiltIn().variants().size());
}

TEST(Choice, FaultContainmentIsMig) {
  const Choice four = Choose(Wants({Promise::kFaultContainment}, 4), {A100()});
  ASSERT_TRUE(four.status.ok()) << four.status;
  EXPECT_EQ(four.mechanism, Mechanism::kMig);
  EXPECT_THAT(Chosen(four).gives, HasSubstr("1g.5gb at "));
  const Choice five = Choose(Wants({Promise::kFaultContainment}, 5), {A100()});
  EXPECT_THAT(Chosen(five).gives, HasSubstr("1g.10gb at "));
  EXPECT_THAT(Chosen(five).why, HasSubstr("1g.5gb holds only 4864 MiB, less than 5 GiB"));
  // Off: it can be switched on while the GPU is idle, and that is said.
  const Choice off = Choose(Wants({Promise::kFaultContainment}, 4), {A100(0, false)});
  ASSERT_TRUE(off.status.ok()) << off.status;
  EXPECT_THAT(Chosen(off).why, HasSubstr("MIG must be switched on first, with a reset"));
}

TEST(Choice, RefusesWithPromiseGpuReasonAndTheNearest) {
  const Choice choice = Choose(Wants({Promise::kFaultContainment}), {T4()});
  ASSERT_EQ(ExitCodeFor(choice.status), ExitCode::kRefused);
  const std::string text = Message(choice.status);
  EXPECT_THAT(text, HasSubstr("fault-containment cannot be kept"));
  EXPECT_THAT(text, HasSubstr("GPU 0 (Tesla T4)"));
  EXPECT_THAT(text, HasSubstr("mig cannot: it has no MIG (compute capability 7.5 < 8.0)"));
  EXPECT_THAT(text, HasSubstr("mps-limits does not keep fault-containment: "));  // each way by its own name
  EXPECT_THAT(text, HasSubstr("intercept does not keep fault-containment: separate contexts confine program faults"));
  EXPECT_THAT(text, HasSubstr("nearest: without --need fault-containment would get"));
}

TEST(Choice, RefusesMoreMemoryThanThereIs) {
  const Choice choice = Choose(Wants({}, 400), {A100(0, false), T4(1)});
  ASSERT_EQ(ExitCodeFor(choice.status), ExitCode::kRefused);
  EXPECT_THAT(Message(choice.status), HasSubstr("39.5 GiB of its 40 GiB can be shared"));
  EXPECT_EQ(choice.nearest, "--memory 40448MiB would get 39.5 GiB by intercept on GPU 0");
  EXPECT_THAT(Message(Choose(Wants({}, 400), {A100()}).status), HasSubstr("7g.40gb holds 40192 MiB"));
}

TEST(Choice, AGpuIsCutAnewOnlyForAPromiseThatNeedsIt) {
  GpuView gpu = A100(0, false);
  for (WayView& way : gpu.ways) {
    if (way.variant->mechanism == Mechanism::kIntercept) way.standing = WayView::Standing::kNotPossible;
  }
  const Choice plain = Choose(Wants({}, 4), {gpu});
  EXPECT_EQ(ExitCodeFor(plain.status), ExitCode::kRefused);
  Ask ask = Wants({}, 4);
  ask.request.via = "mig";
  EXPECT_TRUE(Choose(ask, {gpu}).status.ok());
  EXPECT_EQ(Choose(Wants({Promise::kMemoryQuota}, 4), {gpu}).mechanism, Mechanism::kMig);
}

TEST(Choice, AnEighthSmallInstanceIsRefused) {
  GpuView gpu = A100();
  for (int i = 0; i < 7; ++i) gpu.instances.push_back({"1g.5gb", i, "", "t" + std::to_string(i)});
  const Choice choice = Choose(Wants({Promise::kFaultContainment}, 4), {gpu});
  ASSERT_EQ(ExitCodeFor(choice.status), ExitCode::kRefused);
  EXPECT_THAT(Message(choice.status), HasSubstr("has no place for 1g.5gb"));
  gpu.instances[3].tenant.clear();
  const Choice adopted = Choose(Wants({Promise::kFaultContainment}, 4), {gpu});
  ASSERT_TRUE(adopted.status.ok()) << adopted.status;
  EXPECT_EQ(Chosen(adopted).gives, "1g.5gb at 3, which is there and free");
}

TEST(Choice, TimeSlicingIsRefusedOnMigAndBesideAPromise) {
  Ask ask = Wants({});
  ask.request.via = "time-slicing";
  const Choice on_mig = Choose(ask, {A100()});
  ASSERT_EQ(ExitCodeFor(on_mig.status), ExitCode::kRefused);
  EXPECT_THAT(Message(on_mig.status), HasSubstr("time slices have no effect"));
  GpuView gpu = T4();
  gpu.occupancy.holdings = {{"team", Bytes{8 * kGiB}, std::nullopt, {}}};
  const Choice beside = Choose(ask, {gpu});
  ASSERT_EQ(ExitCodeFor(beside.status), ExitCode::kRefused);
  EXPECT_THAT(Message(beside.status), HasSubstr("share team was promised a part of it"));
  EXPECT_THAT(beside.nearest, HasSubstr("without --via time-slicing"));
}

TEST(Choice, ExclusiveOnlyWhenTheWholeGpuIsAsked) {
  Ask ask = Wants({});
  ask.request.gpus_given = true;
  const Choice whole = Choose(ask, {T4()});
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_EQ(whole.mechanism, Mechanism::kExclusive);
  GpuView busy = T4();
  busy.occupancy.holdings = {{"team", std::nullopt, std::nullopt, {}}};
  const Choice refused = Choose(ask, {busy});
  ASSERT_EQ(ExitCodeFor(refused.status), ExitCode::kRefused);
  EXPECT_THAT(Message(refused.status), HasSubstr("share team use it"));
  const Choice isolated = Choose(Wants({Promise::kBandwidthIsolation}), {T4()});
  EXPECT_THAT(isolated.nearest, HasSubstr("without --need bandwidth-isolation"));
}

TEST(Choice, AForeignProcessEndsWhatTheBookLifts) {
  GpuView gpu = T4();
  gpu.occupancy.foreigners = {{71, "python3", Bytes{kGiB}}};
  const Choice needed = Choose(Wants({Promise::kMemoryQuota}, 4), {gpu});
  ASSERT_EQ(ExitCodeFor(needed.status), ExitCode::kRefused);
  EXPECT_THAT(Message(needed.status), HasSubstr("a cap only, because process 71, of no share, uses the GPU"));
  // Who asked for a size gets it, and is told that it is a cap until the stranger ends.
  const Choice sized = Choose(Wants({}, 4), {gpu});
  ASSERT_TRUE(sized.status.ok()) << sized.status;
  EXPECT_EQ(Chosen(sized).promises.at(0).holds, PromiseReason::Holds::kCapOnly);
}

TEST(Choice, BesideATenantWithoutLimitsNothingIsPromised) {
  GpuView gpu = T4();
  gpu.occupancy.holdings = {{"free", std::nullopt, std::nullopt, {}, "time-slicing", TimeSlice::kLong}};
  const Choice choice = Choose(Wants({}, 4), {gpu});
  ASSERT_EQ(ExitCodeFor(choice.status), ExitCode::kRefused);
  EXPECT_THAT(Message(choice.status), HasSubstr("nothing limits share free"));
  // A GPU has one class of time slices.
  Ask ask = Wants({});
  ask.request.time_slice = TimeSlice::kShort;
  const Choice other = Choose(ask, {gpu});
  ASSERT_EQ(ExitCodeFor(other.status), ExitCode::kRefused);
  EXPECT_THAT(Message(other.status), HasSubstr("share free asked for long"));
  ask.request.time_slice = TimeSlice::kLong;
  const Choice same = Choose(ask, {gpu});
  ASSERT_TRUE(same.status.ok()) << same.status;
  EXPECT_EQ(GrantOf(ask, same, {gpu}).time_slice, TimeSlice::kLong);
  EXPECT_EQ(GrantOf(ask, same, {gpu}).mechanism, "time-slicing");
  ask.request.via = "intercept";
  EXPECT_EQ(ExitCodeFor(Choose(ask, {gpu}).status), ExitCode::kUsage);
}

TEST(Choice, WhatTheMachineLacksIsSaid) {
  GpuView gpu = T4();
  for (WayView& way : gpu.ways) {
    if (way.variant->mechanism != Mechanism::kIntercept) continue;
    way.standing = WayView::Standing::kNotPossible;
    way.lacks = true;
    way.why = "the interceptor is missing";
  }
  EXPECT_EQ(ExitCodeFor(Choose(Wants({}, 4), {gpu}).status), ExitCode::kLacks);
  EXPECT_EQ(ExitCodeFor(Choose(Wants({}), {gpu}).status), ExitCode::kLacks);
  // What it would not keep anyway is not for want of it.
  EXPECT_EQ(ExitCodeFor(Choose(Wants({Promise::kFaultContainment}), {gpu}).status), ExitCode::kRefused);
}

TEST(Choice, AMigDeviceIsGivenWhenItIsNamed) {
  GpuView device;
  device.occupancy.uuid = "MIG-c0000000-0000-0000-0000-000000000000";
  device.occupancy.name = "NVIDIA A100-SXM4-40GB MIG 3g.20gb";
  device.occupancy.total = Bytes{20096 * kMiB};
  device.device = Instance{"3g.20gb", 4, 4};
  const GpuView parent = A100();
  device.parent = parent.occupancy.uuid;
  device.mig = parent.mig;
  device.ways = Ways({{Mechanism::kTimeSlicing, "no effect on a MIG device"}, {Mechanism::kExclusive, "not whole"}});
  // Not unless it is named.
  EXPECT_EQ(Choose(Wants({}, 2), {T4(), device}).reasons.back().gpu_name, "Tesla T4");
  Ask ask = Wants({}, 2);
  ask.request.gpu = device.occupancy.uuid;
  const std::vector<GpuView> views = {parent, device};
  const Choice shared = Choose(ask, views);
  ASSERT_TRUE(shared.status.ok()) << shared.status;
  EXPECT_EQ(shared.mechanism, Mechanism::kIntercept);
  EXPECT_EQ(GrantOf(ask, shared, views).gpus.at(0).uuid, device.occupancy.uuid);
  ask.need = {Promise::kFaultContainment};
  const Choice whole = Choose(ask, views);
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  const GpuGrant part = GrantOf(ask, whole, views).gpus.at(0);
  EXPECT_EQ(part.uuid, parent.occupancy.uuid);
  EXPECT_EQ(part.instance, (Instance{"3g.20gb", 4, 4}));
  ask.request.memory = Bytes{20 * kGiB};
  EXPECT_THAT(Message(Choose(ask, views).status), HasSubstr("holds 19968 MiB"));
}

TEST(Choice, WhatInterceptionWouldIgnoreIsRefused) {
  const std::vector<GpuView> gpus = {A100(0, false)};
  Ask ask;
  ask.request.share = "a";
  ask.request.via = "intercept";
  for (const Promise promise : {Promise::kMemoryQuota, Promise::kComputeCap, Promise::kComputeReservation}) {
    ask.need = {promise};
    EXPECT_EQ(ExitCodeFor(Choose(ask, gpus).status), ExitCode::kRefused) << gpu::Name(promise) << " of how much?";
  }
  ask.need = {Promise::kMemoryQuota, Promise::kComputeCap};
  ask.request.memory = Bytes{kGiB};
  ask.request.compute = Compute{ComputeMode::kHard, Percent{3000}};
  EXPECT_TRUE(Choose(ask, gpus).status.ok()) << Choose(ask, gpus).status;
  ask.request.processes = 2;
  EXPECT_EQ(ExitCodeFor(Choose(ask, gpus).status), ExitCode::kRefused) << "it does not limit processes";
}

TEST(Choice, SeveralGpusByOneMechanism) {
  Ask ask = Wants({}, 4);
  ask.request.gpus = 2;
  ask.request.gpus_given = true;
  EXPECT_EQ(Choose(ask, {T4(0), T4(1), A100(2, false)}).chosen.size(), 2u);
  const Choice one = Choose(ask, {T4(0), A100(1, true)});
  ASSERT_EQ(ExitCodeFor(one.status), ExitCode::kRefused);
  EXPECT_THAT(Message(one.status), HasSubstr("a CUDA process opens one MIG instance only"));
  EXPECT_EQ(one.nearest, "--gpus 1 would get 4 GiB by intercept on GPU 0");
}

TEST(Choice, WrongLinesAreUsage) {
  Ask ask = Wants({});
  ask.request.via = "magic";
  EXPECT_EQ(ExitCodeFor(Choose(ask, {T4()}).status), ExitCode::kUsage);
  ask = Wants({});
  ask.request.gpu = "7";
  EXPECT_EQ(ExitCodeFor(Choose(ask, {T4()}).status), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(Choose(Wants({}), {}).status), ExitCode::kLacks);
  EXPECT_EQ(ParseNeed("fault-containment,memory-quota")->size(), 2u);
  EXPECT_FALSE(ParseNeed("fault-containment,").ok());
  EXPECT_FALSE(ParseNeed("happiness").ok());
}

}  // namespace
}  // namespace mete::plan
