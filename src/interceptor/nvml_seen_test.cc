#include "interceptor/nvml_seen.h"

#include <gtest/gtest.h>

#include <vector>

namespace mete::interceptor {
namespace {

using nvml::abi::nvmlDevice_t;

char handles[8];
nvmlDevice_t Handle(int i) { return reinterpret_cast<nvmlDevice_t>(&handles[i]); }

std::vector<int> Pages(const SeenDevices& seen, nvmlDevice_t device) {
  std::vector<int> pages;
  seen.EachPage(device, [&](int page) { pages.push_back(page); });
  return pages;
}

TEST(SeenDevices, WholeGpusAreTheList) {
  SeenDevices seen;
  seen.Add(Handle(0), nullptr, 0);
  seen.Add(Handle(1), nullptr, 2);  // the driver does not know the one between
  EXPECT_EQ(seen.tops, 2u);
  EXPECT_EQ(seen.top[1], Handle(1));
  EXPECT_EQ(seen.PageOf(Handle(1)), 2);
  EXPECT_EQ(seen.PageOf(Handle(5)), -1);
  EXPECT_FALSE(seen.Has(Handle(5)));
  EXPECT_FALSE(seen.Has(nullptr));
  EXPECT_EQ(seen.MigCount(Handle(0)), 0u);
  EXPECT_EQ(seen.MigIndex(Handle(0)), -1);
  EXPECT_EQ(Pages(seen, Handle(1)), (std::vector<int>{2}));
}

TEST(SeenDevices, AGpuInPartsShowsTheTenantsPartsOnly) {
  SeenDevices seen;
  seen.Add(Handle(4), Handle(0), 0);  // two MIG devices of one GPU, one of another, and a whole GPU
  seen.Add(Handle(5), Handle(1), 1);
  seen.Add(Handle(6), Handle(0), 2);
  seen.Add(Handle(2), nullptr, 3);
  ASSERT_EQ(seen.tops, 3u);
  EXPECT_EQ(seen.top[0], Handle(0));
  EXPECT_EQ(seen.top[1], Handle(1));
  EXPECT_EQ(seen.top[2], Handle(2));
  EXPECT_EQ(seen.MigCount(Handle(0)), 2u);
  EXPECT_EQ(seen.MigAt(Handle(0), 0), Handle(4));
  EXPECT_EQ(seen.MigAt(Handle(0), 1), Handle(6));
  EXPECT_EQ(seen.MigAt(Handle(0), 2), nullptr);
  EXPECT_EQ(seen.MigAt(Handle(2), 0), nullptr);
  EXPECT_EQ(seen.MigIndex(Handle(6)), 1);
  EXPECT_EQ(seen.MigIndex(Handle(5)), 0);
  EXPECT_TRUE(seen.InParts(Handle(0)));
  EXPECT_FALSE(seen.InParts(Handle(2)));
  EXPECT_FALSE(seen.InParts(Handle(4)));
  EXPECT_FALSE(seen.InParts(nullptr));
  EXPECT_EQ(seen.PageOf(Handle(0)), -1) << "the GPU itself is nobody's";
  EXPECT_TRUE(seen.Has(Handle(0)));
  EXPECT_EQ(Pages(seen, Handle(0)), (std::vector<int>{0, 2}));
  EXPECT_EQ(Pages(seen, Handle(6)), (std::vector<int>{2}));
}

}  // namespace
}  // namespace mete::interceptor
