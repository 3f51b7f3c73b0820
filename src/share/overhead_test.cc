#include "share/overhead.h"

#include <gtest/gtest.h>

namespace mete::share {
namespace {

TEST(Overhead, CountsWhenThreeReadingsShowIt) {
  Overhead overhead;
  EXPECT_EQ(overhead.Next(500, 300), 0u);
  EXPECT_EQ(overhead.Next(500, 300), 0u);
  EXPECT_EQ(overhead.Next(500, 300), 200u);
  EXPECT_EQ(overhead.Next(500, 500), 200u) << "nor is it gone because of one";
  EXPECT_EQ(overhead.Next(500, 500), 200u);
  EXPECT_EQ(overhead.Next(500, 500), 0u);
}

TEST(Overhead, ABlockThatComesAndGoesIsNone) {
  Overhead overhead;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(overhead.Next(800, 300), 0u);  // the driver was asked in between
    EXPECT_EQ(overhead.Next(300, 300), 0u);
    EXPECT_EQ(overhead.Next(300, 800), 0u);
  }
}

TEST(Overhead, TheCommonPartOfWhatMovesCounts) {
  Overhead overhead;
  overhead.Next(700, 100), overhead.Next(500, 100), overhead.Next(900, 100);
  EXPECT_EQ(overhead.bytes(), 400u);
  overhead.Next(150, 100), overhead.Next(200, 100), overhead.Next(120, 100);
  EXPECT_EQ(overhead.bytes(), 100u);
}

TEST(Overhead, LessThanIsChargedIsNone) {
  Overhead overhead;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(overhead.Next(0, UINT64_MAX), 0u);
}

}  // namespace
}  // namespace mete::share
