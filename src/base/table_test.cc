#include "base/table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sstream>

#include "base/text.h"

namespace mete {
namespace {

TEST(Table, AlignsColumnsAndLeavesNoTrailingSpace) {
  Table table({{"GPU"}, {"memory", Align::kRight}, {"note"}});
  table.AddRow({"0", "40 GiB", "first"});
  table.AddRow({"10", "512 MiB"});
  EXPECT_EQ(table.Render(),
            "GPU   memory  note\n"
            "0     40 GiB  first\n"
            "10   512 MiB\n");
}

TEST(Table, WrapsOnlyColumnsThatMay) {
  Table table({{"name"}, {"why", Align::kLeft, true}});
  table.AddRow({"a-long-name", "this sentence is longer than the terminal"});
  EXPECT_EQ(table.Render(30, 2),
            "  name         why\n"
            "  a-long-name  this sentence\n"
            "               is longer than\n"
            "               the terminal\n");
}

TEST(Table, CountsCodePointsNotBytes) {
  Table table({{"a"}, {"b"}});
  table.AddRow({"±5 %", "x"});
  table.AddRow({"≤ 10", "y"});
  EXPECT_EQ(table.Render(), "a     b\n±5 %  x\n≤ 10  y\n");
}

TEST(Table, LeavesOutAnEmptyTitleLine) {
  Table table({{""}, {""}});
  table.AddRow({"a", "b"});
  EXPECT_EQ(table.Render(), "a  b\n");
}

RC_GTEST_PROP(Table, NeverWiderThanAskedWhenTheTextCanWrap, ()) {
  const auto words =
      *rc::gen::container<std::vector<std::string>>(rc::gen::container<std::string>(rc::gen::inRange('a', 'z')));
  const auto width = static_cast<size_t>(*rc::gen::inRange(20, 100));
  std::string text;
  for (const std::string& word : words) text += word + " ";
  Table table({{"k"}, {"text", Align::kLeft, true}});
  table.AddRow({"v", text});
  std::istringstream lines(table.Render(width));
  for (std::string line; std::getline(lines, line);) RC_ASSERT(DisplayWidth(line) <= width);
}

TEST(Text, WrapKeepsEveryWord) {
  EXPECT_EQ(Wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(Wrap("abcdefghij", 4), (std::vector<std::string>{"abcd", "efgh", "ij"}));
  EXPECT_EQ(Wrap("", 4), (std::vector<std::string>{""}));
  EXPECT_EQ(Wrap("a\nb", 4), (std::vector<std::string>{"a", "b"}));
}

TEST(Text, EditDistanceCountsSwapsOnce) {
  EXPECT_EQ(EditDistance("inventory", "inventroy"), 1U);
  EXPECT_EQ(EditDistance("T4", "t4"), 0U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
}

RC_GTEST_PROP(Text, EditDistanceIsAMetricOnShortWords, ()) {
  const auto word = [] { return rc::gen::container<std::string>(rc::gen::inRange('a', 'd')); };
  const std::string a = *word(), b = *word();
  RC_ASSERT(EditDistance(a, b) == EditDistance(b, a));
  RC_ASSERT((EditDistance(a, b) == 0U) == (a == b));
  RC_ASSERT(EditDistance(a, b) <= std::max(a.size(), b.size()));
}

TEST(Text, NearestNamesFindsTyposAndParts) {
  const std::vector<std::string> names{"inventory", "explain", "emulate", "version"};
  EXPECT_EQ(NearestNames("inventroy", names), (std::vector<std::string>{"inventory"}));
  EXPECT_EQ(NearestNames("invent", names), (std::vector<std::string>{"inventory"}));
  EXPECT_TRUE(NearestNames("zzzzzz", names).empty());
  EXPECT_TRUE(NearestNames("", names).empty());
}

TEST(Text, JoinsNamesAsASentenceDoes) {
  EXPECT_EQ(JoinNames({}, "or"), "");
  EXPECT_EQ(JoinNames({"a"}, "or"), "a");
  EXPECT_EQ(JoinNames({"a", "b", "c"}, "or"), "a, b or c");
}

}  // namespace
}  // namespace mete
