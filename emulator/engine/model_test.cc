#include "emulator/engine/model.h"

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <vector>

#include "tests/sanitized.h"

namespace mete::emulator {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

constexpr uint64_t kMs = 1'000'000;

// A compute-bound kernel that fills the GPU with `waves` waves of blocks and takes about `ns` alone.
Work Compute(double ns, double waves = 1, double blocks_share = 1) {
  const GpuParameters gpu;
  Work work;
  work.kind = WorkKind::kKernel;
  work.kernel.threads_per_block = 256;  // 8 blocks to an SM
  work.kernel.blocks = static_cast<uint64_t>(gpu.sm_count * 8 * waves * blocks_share);
  // Eight co-resident blocks share the issue slots, each class fp32 at 2 per cycle.
  work.kernel.warp_instructions[kFp32] = ns * 1e-9 * gpu.clock_hz * 2 / 8 / waves;
  return work;
}

Work Marker() { return {}; }

struct Finished : std::map<std::pair<StreamId, uint64_t>, uint64_t> {
  std::function<void(const Completion&)> Recorder() {
    return [this](const Completion& done) {
      EXPECT_GE(done.at_ns, last);
      last = done.at_ns;
      EXPECT_TRUE(emplace(std::make_pair(done.stream, done.sequence), done.at_ns).second) << "reported twice";
    };
  }
  uint64_t last = 0;
};

constexpr uint64_t kLongAfter = 1000'000 * kMs;

TEST(Model, OneKernelTakesItsTime) {
  GpuModel gpu{GpuParameters{}};
  const StreamId stream = gpu.AddStream(gpu.AddContext(0));
  EXPECT_EQ(gpu.Submit(0, stream, Compute(5 * kMs)), 1u);
  Finished done;
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  EXPECT_NEAR(static_cast<double>(done.at({stream, 1})), 5.0 * kMs, 5000);  // launch overhead
  EXPECT_FALSE(gpu.NextEventNs().has_value());
}

TEST(Model, TailWaveCostsAWholeWave) {
  const GpuParameters parameters;
  GpuModel gpu{parameters};
  const StreamId stream = gpu.AddStream(gpu.AddContext(0));
  Work work;
  work.kind = WorkKind::kKernel;
  work.kernel.threads_per_block = 1024;
  work.kernel.registers_per_thread = 64;  // one block to an SM
  work.kernel.critical_cycles = parameters.clock_hz * 1e-3;
  work.kernel.blocks = 108;
  gpu.Submit(0, stream, work);
  work.kernel.blocks = 109;
  gpu.Submit(0, stream, work);
  Finished done;
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  EXPECT_NEAR(static_cast<double>(done.at({stream, 1})), 1.0 * kMs, 5000);
  EXPECT_NEAR(static_cast<double>(done.at({stream, 2}) - done.at({stream, 1})), 2.0 * kMs, 5000);
}

TEST(Model, TwoEqualSaturatingContextsTakeTwiceAsLong) {
  GpuModel gpu{GpuParameters{}};
  std::vector<StreamId> streams;
  for (int i = 0; i < 2; ++i) {
    streams.push_back(gpu.AddStream(gpu.AddContext(0)));
    for (int k = 0; k < 66; ++k) gpu.Submit(0, streams.back(), Compute(1 * kMs, 4));
  }
  Finished done;
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  for (const StreamId stream : streams) {
    EXPECT_THAT(static_cast<double>(done.at({stream, 66})) / kMs, AllOf(Ge(114), Le(145)));
  }
  EXPECT_GT(gpu.Counters().switches, 50u);
}

// Each context keeps eight kernels queued; returns the busy time of each after `span`.
std::vector<double> Saturate(const std::vector<int>& contexts_of_tenant, uint64_t span, double kernel_ns) {
  GpuModel gpu{GpuParameters{}};
  std::vector<std::vector<ContextId>> tenants;
  for (const int count : contexts_of_tenant) {
    auto& mine = tenants.emplace_back();
    for (int i = 0; i < count; ++i) {
      mine.push_back(gpu.AddContext(0));
      const StreamId stream = gpu.AddStream(mine.back());
      for (int k = 0; k < 8; ++k) gpu.Submit(0, stream, Compute(kernel_ns));
    }
  }
  gpu.AdvanceTo(span, [&](const Completion& done) { gpu.Submit(done.at_ns, done.stream, Compute(kernel_ns)); });
  std::vector<double> busy;
  for (const auto& mine : tenants) {
    double sum = 0;
    for (const ContextId context : mine) sum += static_cast<double>(gpu.ContextBusyNs(context));
    busy.push_back(sum / static_cast<double>(span));
  }
  return busy;
}

TEST(Model, TenProcessesAgainstOneTakeTenElevenths) {
  const auto busy = Saturate({1, 10}, 2000 * kMs, 1.0 * kMs);
  EXPECT_NEAR(busy[0] / (busy[0] + busy[1]), 1.0 / 11, 0.01);
  EXPECT_GT(busy[0] + busy[1], 0.97);
}

// Ten seconds of short kernels of ten contexts: ctest's timeout is the only clock here, the number of events is what
// must stay small. About 100 000 kernels.
TEST(Model, TenContextsOfShortKernels) {
  const uint64_t seconds = mete::testing::kSanitized ? 3 : 10;
  const auto busy = Saturate(std::vector<int>(10, 1), seconds * 1'000 * kMs, 0.1 * kMs);
  for (const double share : busy) EXPECT_NEAR(share, 0.0985, 0.003);
}

TEST(Model, SmallKernelsOfTwoStreamsOverlapAndWholeGpuKernelsDoNot) {
  for (const double share : {0.25, 1.0}) {
    GpuModel gpu{GpuParameters{}};
    const ContextId context = gpu.AddContext(0);
    const StreamId a = gpu.AddStream(context), b = gpu.AddStream(context);
    Work work = Compute(10 * kMs, 1, share);
    work.kernel.critical_cycles = 0.01 * GpuParameters{}.clock_hz;
    gpu.Submit(0, a, work);
    gpu.Submit(0, b, work);
    Finished done;
    gpu.AdvanceTo(kLongAfter, done.Recorder());
    const double both = static_cast<double>(done.last) / kMs;
    EXPECT_NEAR(both, share < 1 ? 10 : 20, 0.1) << share;
  }
}

TEST(Model, KernelOfOneBlockDoesNotDelayItsNeighbour) {
  GpuModel gpu{GpuParameters{}};
  const ContextId context = gpu.AddContext(0);
  const StreamId a = gpu.AddStream(context), b = gpu.AddStream(context);
  Work lonely = Compute(10 * kMs);
  lonely.kernel.blocks = 1;
  lonely.kernel.critical_cycles = 0.01 * GpuParameters{}.clock_hz;
  gpu.Submit(0, a, lonely);
  gpu.Submit(0, b, Compute(4 * kMs, 4));
  Finished done;
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  EXPECT_NEAR(static_cast<double>(done.at({b, 1})) / kMs, 4, 1.2);  // a wave more at most
  EXPECT_NEAR(static_cast<double>(done.at({a, 1})) / kMs, 10, 0.6);
}

TEST(Model, RemovedContextGivesTheGpuBackAtOnceAndReportsNothing) {
  GpuModel gpu{GpuParameters{}};
  const ContextId first = gpu.AddContext(0), second = gpu.AddContext(0);
  const StreamId a = gpu.AddStream(first), b = gpu.AddStream(second);
  Work endless = Compute(1 * kMs);
  endless.kernel.unbounded = 1;
  gpu.Submit(0, a, endless);
  gpu.Submit(0, a, Marker());
  gpu.Submit(0, b, Compute(10 * kMs));
  Finished done;
  gpu.AdvanceTo(15 * kMs, done.Recorder());
  EXPECT_TRUE(done.empty());
  EXPECT_GT(gpu.ContextBusyNs(second), 5 * kMs);  // an endless kernel hangs its own context only
  gpu.RemoveContext(15 * kMs, first);
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  EXPECT_EQ(done.size(), 1u);
  EXPECT_THAT(static_cast<double>(done.at({b, 1})) / kMs, AllOf(Ge(17), Le(19)));
  EXPECT_FALSE(gpu.NextEventNs().has_value());
  EXPECT_EQ(gpu.AddStream(first), 0u);
  EXPECT_EQ(gpu.Submit(kLongAfter, a, Marker()), 0u);
}

TEST(Model, UnboundedKernelNeverEndsAndKeepsTheGpuBusy) {
  GpuModel gpu{GpuParameters{}};
  const ContextId context = gpu.AddContext(0);
  const StreamId stream = gpu.AddStream(context);
  Work endless = Compute(1 * kMs);
  endless.kernel.unbounded = 1;
  gpu.Submit(0, stream, endless);
  Finished done;
  gpu.AdvanceTo(1000 * kMs, done.Recorder());
  EXPECT_TRUE(done.empty());
  EXPECT_GT(gpu.Counters().busy_ns, 999 * kMs);
  EXPECT_FALSE(gpu.ContextIdle(context));
}

TEST(Model, CopiesGoOnBesideKernelsAndBothDirectionsAtOnce) {
  GpuModel gpu{GpuParameters{}};
  const ContextId context = gpu.AddContext(0);
  const StreamId a = gpu.AddStream(context), b = gpu.AddStream(context), c = gpu.AddStream(context);
  Work copy;
  copy.kind = WorkKind::kCopyHostToDevice;
  copy.bytes = 250'000'000;  // 10 ms
  gpu.Submit(0, a, copy);
  copy.kind = WorkKind::kCopyDeviceToHost;
  gpu.Submit(0, b, copy);
  gpu.Submit(0, c, Compute(10 * kMs));
  Finished done;
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  EXPECT_NEAR(static_cast<double>(done.last) / kMs, 10, 0.1);
}

TEST(Model, CopiesOfOneDirectionShareItsEngine) {
  GpuModel gpu{GpuParameters{}};
  Work copy;
  copy.kind = WorkKind::kCopyHostToDevice;
  copy.bytes = 250'000'000;
  for (int i = 0; i < 2; ++i) gpu.Submit(0, gpu.AddStream(gpu.AddContext(0)), copy);
  Finished done;
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  EXPECT_NEAR(static_cast<double>(done.last) / kMs, 20, 0.1);
}

TEST(Model, ColdCacheAfterASwitchCostsTraffic) {
  const auto bytes = [](int contexts) {
    GpuModel gpu{GpuParameters{}};
    for (int i = 0; i < contexts; ++i) {
      const StreamId stream = gpu.AddStream(gpu.AddContext(0));
      Work work = Compute(1 * kMs);
      work.kernel.memory_bytes = 1 << 20;
      work.kernel.working_set_bytes = 20 << 20;
      for (int k = 0; k < 40; ++k) gpu.Submit(0, stream, work);
    }
    gpu.AdvanceTo(kLongAfter, [](const Completion&) {});
    return gpu.Counters().bytes;
  };
  EXPECT_NEAR(bytes(1), 20 << 20, 1 << 20);  // fetched once
  EXPECT_GT(bytes(2), 20 * bytes(1));        // after every switch again
}

TEST(Model, MarkersAndWaitsKeepStreamOrder) {
  GpuModel gpu{GpuParameters{}};
  const ContextId context = gpu.AddContext(0);
  const StreamId a = gpu.AddStream(context), b = gpu.AddStream(context);
  Work wait;
  wait.kind = WorkKind::kWaitFor;
  wait.wait_stream = a;
  wait.wait_sequence = 2;
  gpu.Submit(0, b, wait);
  gpu.Submit(0, b, Compute(1 * kMs));
  gpu.Submit(0, a, Compute(3 * kMs));
  gpu.Submit(0, a, Marker());
  Finished done;
  gpu.AdvanceTo(kLongAfter, done.Recorder());
  EXPECT_EQ(done.at({a, 1}), done.at({a, 2}));
  EXPECT_EQ(done.at({b, 1}), done.at({a, 2}));
  EXPECT_GE(done.at({b, 2}), 4 * kMs);
}

TEST(Model, WaitingForAStreamThatIsGoneEnds) {
  GpuModel gpu{GpuParameters{}};
  const ContextId first = gpu.AddContext(0), second = gpu.AddContext(0);
  const StreamId a = gpu.AddStream(first), b = gpu.AddStream(second);
  Work wait;
  wait.kind = WorkKind::kWaitFor;
  wait.wait_stream = a;
  wait.wait_sequence = 7;
  gpu.Submit(0, b, wait);
  Finished done;
  gpu.AdvanceTo(1 * kMs, done.Recorder());
  EXPECT_TRUE(done.empty());
  gpu.RemoveContext(1 * kMs, first);
  gpu.AdvanceTo(2 * kMs, done.Recorder());
  EXPECT_EQ(done.at({b, 1}), 1 * kMs);
}

TEST(Model, ClosedStreamFinishesItsWork) {
  GpuModel gpu{GpuParameters{}};
  const StreamId stream = gpu.AddStream(gpu.AddContext(0));
  gpu.Submit(0, stream, Compute(1 * kMs));
  gpu.RemoveStream(0, stream);
  Finished done;
  gpu.AdvanceTo(5 * kMs, done.Recorder());
  EXPECT_EQ(done.size(), 1u);
  EXPECT_EQ(gpu.Submit(5 * kMs, stream, Marker()), 0u);
}

TEST(Model, WorkSubmittedForLaterBeginsThen) {
  GpuModel gpu{GpuParameters{}};
  const StreamId stream = gpu.AddStream(gpu.AddContext(0));
  gpu.Submit(7 * kMs, stream, Marker());
  EXPECT_EQ(gpu.NextEventNs(), 7 * kMs);
  Finished done;
  gpu.AdvanceTo(10 * kMs, done.Recorder());
  EXPECT_EQ(done.at({stream, 1}), 7 * kMs);
}

// Random work on random streams; `step`: how the caller moves time on.
Finished RandomRun(uint64_t seed, const std::function<void(GpuModel&, uint64_t, Finished&)>& advance) {
  std::mt19937_64 random(seed);
  GpuModel gpu{GpuParameters{}};
  std::vector<StreamId> streams;
  std::vector<ContextId> contexts;
  for (int i = 0; i < 4; ++i) {
    contexts.push_back(gpu.AddContext(0));
    for (int k = 0; k < 3; ++k) streams.push_back(gpu.AddStream(contexts.back()));
  }
  Finished done;
  uint64_t now = 0;
  for (int i = 0; i < 600; ++i) {
    Work work = Compute(static_cast<double>(random() % (2 * kMs)), static_cast<double>(1 + random() % 5),
                        static_cast<double>(1 + random() % 8) / 8);
    work.kind = static_cast<WorkKind>(random() % 6);
    work.bytes = random() % 50'000'000;
    work.kernel.memory_bytes = static_cast<double>(random() % 100'000);
    work.kernel.working_set_bytes = static_cast<double>(random() % 100'000'000);
    work.wait_stream = streams[random() % streams.size()];
    work.wait_sequence = random() % 20;
    gpu.Submit(now, streams[random() % streams.size()], work);
    if (i == 400) gpu.RemoveContext(now, contexts[1]);
    now += random() % 200'000;
    advance(gpu, now, done);
  }
  advance(gpu, kLongAfter, done);
  return done;
}

void Straight(GpuModel& gpu, uint64_t to, Finished& done) { gpu.AdvanceTo(to, done.Recorder()); }

TEST(Model, IsDeterministic) {
  const Finished first = RandomRun(7, Straight);
  EXPECT_GT(first.size(), 100u);
  EXPECT_EQ(first, RandomRun(7, Straight));
  EXPECT_NE(first, RandomRun(8, Straight));
}

TEST(Model, NextEventIsExactlyWhenSomethingHappens) {
  const Finished straight = RandomRun(11, Straight);
  const Finished stepped = RandomRun(11, [](GpuModel& gpu, uint64_t to, Finished& done) {
    for (auto next = gpu.NextEventNs(); next && *next <= to; next = gpu.NextEventNs()) {
      ASSERT_GE(*next, gpu.NowNs());
      if (*next > gpu.NowNs() + 1) {  // nothing completes before the next event
        const size_t before = done.size();
        gpu.AdvanceTo(*next - 1, done.Recorder());
        ASSERT_EQ(done.size(), before);
        ASSERT_EQ(gpu.NextEventNs(), next);
      }
      gpu.AdvanceTo(*next, done.Recorder());
    }
    gpu.AdvanceTo(to, done.Recorder());
  });
  ASSERT_EQ(straight.size(), stepped.size());
  // Stopping on the way changes only the rounding of sums.
  for (const auto& [key, at] : straight) {
    EXPECT_NEAR(static_cast<double>(stepped.at(key)), static_cast<double>(at), 1000);
  }
}

}  // namespace
}  // namespace mete::emulator
