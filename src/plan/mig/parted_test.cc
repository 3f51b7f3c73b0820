#include "plan/mig/parted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::plan::mig {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFile = R"(version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  mixed:
    - device-filter: ["0x20B010DE", "0x20F110DE"]
      devices: [0, 2]
      mig-enabled: true
      mig-devices:
        "1g.5gb": 2
        "2g.10gb": 1
        "3g.20gb": 1
    - device-filter: "0x233010DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb+me": 1}
)";

TEST(Parted, IsReadAndWritten) {
  const auto file = ParseParted(kFile, "config.yaml");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->configs.size(), 3u);
  const auto& entries = **file->Find("mixed");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_TRUE(entries[0].Matches(2, 0x20F110DE));
  EXPECT_FALSE(entries[0].Matches(1, 0x20F110DE));
  EXPECT_FALSE(entries[0].Matches(2, 0x233010DE));
  EXPECT_TRUE(entries[1].Matches(7, 0x233010DE));
  EXPECT_EQ(entries[0].profiles.size(), 3u);
  EXPECT_THAT(Message(file->Find("none").status()), HasSubstr("all-disabled, all-enabled and mixed"));
  const auto again = ParseParted(WriteParted(*file), "written");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *file);
}

TEST(Parted, WhatIsWrongIsNamedWithItsLine) {
  const auto with = [](std::string from, std::string to) {
    std::string text = kFile;
    text.replace(text.find(from), from.size(), to);
    return Message(ParseParted(text, "config.yaml").status());
  };
  EXPECT_THAT(with("version: v1", "version: v2"), HasSubstr("must be v1"));
  EXPECT_THAT(with("devices: [0, 2]", "devices: some"), HasSubstr("config.yaml, line 1"));
  EXPECT_THAT(with("\"1g.5gb\": 2", "\"1g.5gb\": many"), HasSubstr("whole number"));
  EXPECT_THAT(with("\"1g.5gb\": 2", "\"large\": 2"), HasSubstr("profiles like"));
  EXPECT_THAT(with("mig-devices: {}", ""), HasSubstr("\"mig-devices\" is missing"));
  EXPECT_THAT(with("mig-enabled: false", "mig-enabled: false\n      mig-devices: {\"1g.5gb\": 7}"),
              HasSubstr("is false"));
  EXPECT_THAT(with("mig-enabled: false", "mig-enabled: false\n      colour: red"), HasSubstr("colour"));
  EXPECT_THAT(with("0x233010DE", "233010DE"), HasSubstr("PCI ids"));
}

}  // namespace
}  // namespace mete::plan::mig
