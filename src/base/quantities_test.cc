#include "base/quantities.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>

namespace mete {
namespace {

uint64_t Parsed(std::string_view text) {
  const auto bytes = ParseBytes(text);
  EXPECT_TRUE(bytes.ok()) << text << ": " << bytes.status();
  return bytes.ok() ? bytes->count : 0;
}

TEST(Bytes, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(Parsed("4GiB"), 4 * kGiB);
  EXPECT_EQ(Parsed("512MiB"), 512 * kMiB);
  EXPECT_EQ(Parsed("20GB"), 20'000'000'000U);
  EXPECT_EQ(Parsed("1.5GiB"), kGiB + kGiB / 2);
  EXPECT_EQ(Parsed("4096MiB"), 4 * kGiB);
  EXPECT_EQ(Parsed("1073741824B"), kGiB);
  EXPECT_EQ(Parsed("4 gib"), 4 * kGiB);
  EXPECT_EQ(Parsed("0.1KB"), 100U);
}

TEST(Bytes, FractionsRoundDownToAByte) {
  EXPECT_EQ(Parsed("1.0009KiB"), 1024U);
  EXPECT_EQ(Parsed("1.9B"), 1U);
}

TEST(Bytes, RefusesWhatIsNotASize) {
  for (const char* text : {"",
                           "GiB",
                           "4",
                           "4G",
                           "4Gi",
                           "-4GiB",
                           "+4GiB",
                           "0GiB",
                           "0.4B",
                           "4GiBs",
                           "4  GiB",
                           " 4GiB",
                           "1e3MiB",
                           "4.GiB",
                           ".5GiB",
                           "99999999999TiB",
                           "99999999999999999999B",
                           "18446744073709551616B",
                           "999999999999999999999B",
                           "1.0000000000000000001GiB",
                           "4GiB "}) {
    const auto bytes = ParseBytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(ExitCodeFor(bytes.status()), ExitCode::kUsage) << text;
  }
}

TEST(Bytes, SaysWhatToWriteInstead) {
  EXPECT_EQ(Message(ParseBytes("4").status()),
            "the size \"4\" has no unit: write 4GiB (2^30 bytes), 4GB (10^9), MiB, MB or B");
  EXPECT_EQ(Message(ParseBytes("4G").status()),
            "the size \"4G\" has an unknown unit \"G\": use GiB or MiB (powers of 2), GB or MB (powers of 10), or B");
}

TEST(Bytes, PrintsTheShortestExactForm) {
  EXPECT_EQ(ToString(Bytes{4 * kGiB}), "4 GiB");
  EXPECT_EQ(ToString(Bytes{kGiB * 3 / 2}), "1.5 GiB");
  EXPECT_EQ(ToString(Bytes{4864 * kMiB}), "4864 MiB");
  EXPECT_EQ(ToString(Bytes{10}), "10 B");
  EXPECT_EQ(ToString(Bytes{0}), "0 B");
  EXPECT_EQ(ToString(Bytes{1023}), "1023 B");
}

RC_GTEST_PROP(Bytes, PrintedSizesReadBackExactly, ()) {
  const auto count = *rc::gen::oneOf(
      rc::gen::positive<uint64_t>(),
      rc::gen::map(rc::gen::inRange(1, 1 << 20), [](int mib) { return uint64_t{kMiB} * static_cast<uint64_t>(mib); }));
  const auto bytes = ParseBytes(ToString(Bytes{count}));
  RC_ASSERT(bytes.ok());
  RC_ASSERT(bytes->count == count);
}

RC_GTEST_PROP(Bytes, AnyTextIsReadOrRefusedAsUsage, (const std::string& text)) {
  const auto bytes = ParseBytes(text);
  if (bytes.ok()) {
    RC_ASSERT(bytes->count > 0U);
  } else {
    RC_ASSERT(ExitCodeFor(bytes.status()) == ExitCode::kUsage);
  }
}

RC_GTEST_PROP(Bytes, AFractionNeverExceedsTheNextWhole, ()) {
  const int whole = *rc::gen::inRange(0, 1000);
  const int thousandths = *rc::gen::inRange(0, 1000);
  const auto bytes = ParseBytes(fmt::format("{}.{:03}MiB", whole, thousandths));
  if (whole == 0 && thousandths == 0) {
    RC_ASSERT(!bytes.ok());
    return;
  }
  RC_ASSERT(bytes.ok());
  const uint64_t expected = (static_cast<uint64_t>(whole) * 1000 + static_cast<uint64_t>(thousandths)) * kMiB / 1000;
  RC_ASSERT(bytes->count == expected);
}

TEST(Percent, ReadsWholeAndFractional) {
  EXPECT_EQ(ParsePercent("30%").value().hundredths, 3000U);
  EXPECT_EQ(ParsePercent("30").value().hundredths, 3000U);
  EXPECT_EQ(ParsePercent("30 %").value().hundredths, 3000U);
  EXPECT_EQ(ParsePercent("12.5%").value().hundredths, 1250U);
  EXPECT_EQ(ParsePercent("0.01").value().hundredths, 1U);
  EXPECT_EQ(ParsePercent("100%").value().hundredths, 10000U);
  EXPECT_EQ(ParsePercent("33.330%").value().hundredths, 3333U);
}

TEST(Percent, RefusesWhatIsNotAShare) {
  for (const char* text : {"", "%", "0", "0%", "-1", "101", "100.01%", "0.001%", "12.345", "30%%", "thirty",
                           "30 percent", "999999999999999999999", "1e1"}) {
    const auto percent = ParsePercent(text);
    ASSERT_FALSE(percent.ok()) << text;
    EXPECT_EQ(ExitCodeFor(percent.status()), ExitCode::kUsage) << text;
  }
}

RC_GTEST_PROP(Percent, PrintedSharesReadBackExactly, ()) {
  const auto hundredths = *rc::gen::inRange<uint32_t>(1, 10001);
  const auto percent = ParsePercent(ToString(Percent{hundredths}));
  RC_ASSERT(percent.ok());
  RC_ASSERT(percent->hundredths == hundredths);
}

RC_GTEST_PROP(Percent, AnyTextIsReadOrRefusedAsUsage, (const std::string& text)) {
  const auto percent = ParsePercent(text);
  const bool fits = percent.ok() ? percent->hundredths >= 1U && percent->hundredths <= 10000U
                                 : ExitCodeFor(percent.status()) == ExitCode::kUsage;
  RC_ASSERT(fits);
}

}  // namespace
}  // namespace mete
