#include "interceptor/sharded_map.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "interceptor/array.h"
#include "interceptor/cost.h"
#include "interceptor/extent.h"

namespace mete::interceptor {
namespace {

TEST(ShardedMap, AgreesWithAModel) {
  ShardedMap<uint64_t> map;
  std::map<uint64_t, uint64_t> model;
  std::mt19937_64 random(7);
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t key = random() % 5000 * 512 + 512;
    uint64_t value = 0;
    switch (random() % 3) {
      case 0:
        ASSERT_TRUE(map.Insert(key, static_cast<uint64_t>(step)));
        model[key] = static_cast<uint64_t>(step);
        break;
      case 1: {
        const bool known = map.Take(key, &value);
        ASSERT_EQ(known, model.count(key) == 1);
        if (known) {
          ASSERT_EQ(value, model[key]);
        }
        model.erase(key);
        break;
      }
      default:
        map.Update(key, [&](uint64_t& cell, bool fresh) {
          EXPECT_EQ(fresh, model.count(key) == 0);
          if (!fresh) {
            EXPECT_EQ(cell, model[key]);
          }
          return !fresh;
        });
    }
  }
  EXPECT_EQ(map.Size(), model.size());
  size_t taken = 0;
  map.TakeAll([](uint64_t value) { return value % 2 == 0; },
              [&](uint64_t key, uint64_t value) {
                ++taken;
                EXPECT_EQ(model[key], value);
                model.erase(key);
              });
  EXPECT_GT(taken, 0u);
  EXPECT_EQ(map.Size(), model.size());
  for (const auto& [key, expected] : model) {
    uint64_t value = 0;
    EXPECT_EQ(expected % 2, 1u);
    ASSERT_TRUE(map.Take(key, &value));
    EXPECT_EQ(value, expected);
  }
}

TEST(ShardedMap, ThreadsDoNotLoseEachOthersKeys) {
  ShardedMap<uint64_t> map;
  std::vector<std::thread> threads;
  for (uint64_t id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      for (uint64_t round = 0; round < 20; ++round) {
        for (uint64_t i = 1; i <= 500; ++i) map.Insert(i * 4096 + id, i);
        for (uint64_t i = 1; i <= 500; ++i) {
          uint64_t value = 0;
          EXPECT_TRUE(map.Take(i * 4096 + id, &value));
          EXPECT_EQ(value, i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(map.Size(), 0u);
}

TEST(Cost, LearnsDownwardFasterThanUpward) {
  auto costs = std::make_unique<CostTable>();
  const uint64_t key = CostKey(nullptr, 1, 1);
  EXPECT_EQ(costs->Predict(key), 0u);
  costs->Learn(key, 1000);
  EXPECT_EQ(costs->Predict(key), 1000u);
  costs->Learn(key, 0);
  EXPECT_EQ(costs->Predict(key), 501u);
  costs->Learn(key, 1301);
  EXPECT_EQ(costs->Predict(key), 601u);
  for (uint64_t other = 0; other < 100'000; ++other) costs->Learn(CostKey(&other, other, 2), 5);  // more than it holds
}

TEST(Array, SizesAreWholeTiles) {
  EXPECT_EQ(ArrayBytes({4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 1), uint64_t{64} << 20);
  EXPECT_EQ(ArrayBytes({1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1), 512u);
  EXPECT_GT(ArrayBytes({256, 256, 256, CU_AD_FORMAT_FLOAT, 1, 0}, 9), uint64_t{64} << 20);
  EXPECT_EQ(ArrayBytes({256, 256, 256, CU_AD_FORMAT_FLOAT, 1, 0x40}, 1), 0u);  // sparse
  EXPECT_EQ(ArrayBytes({SIZE_MAX, SIZE_MAX, SIZE_MAX, CU_AD_FORMAT_FLOAT, 4, 0}, 1), UINT64_MAX);
}

TEST(Extent, PiecesAreChargedWithWhatIsLostAtAGranulesEnd) {
  constexpr uint64_t kMost = UINT64_MAX;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{512}, uint64_t{4000}, uint64_t{65'535}, uint64_t{65'536},
                               uint64_t{700'000}, kSmallBelow - 1, kSmallBelow, kGranule, kGranule + 1}) {
    // As many as a granule takes, and one more.
    const uint64_t unit = RoundUp(bytes, 512), each = bytes < kSmallBelow ? kGranule / unit : 1;
    Extent full, more;
    for (uint64_t i = 0; i < each; ++i) full.Add(bytes);
    more.Add(full);
    more.Add(bytes);
    const uint64_t one = bytes < kSmallBelow ? kGranule : RoundUp(bytes, kGranule);
    EXPECT_GE(full.Most(), one) << bytes;
    EXPECT_GT(more.Most(), one) << bytes;
    EXPECT_LE(full.Most(), one * 2) << bytes;
  }
  Extent nothing;
  nothing.Add(0);
  EXPECT_TRUE(nothing.Empty());
  Extent absurd;
  absurd.Add(kMost);
  absurd.Add(absurd);
  EXPECT_EQ(absurd.Most(), kMost);
}

}  // namespace
}  // namespace mete::interceptor
