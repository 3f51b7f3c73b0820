#include "cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

struct Result {
  int status;
  std::string out, err;
};

Result Call(const std::vector<std::string>& words) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = Main(words);
  return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(Main, HelpListsEveryCommandAndFitsAScreen) {
  const Result help = Call({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const Command* command : Commands()) {
    if (command->group == Group::kInternal) continue;
    EXPECT_THAT(help.out, HasSubstr("  " + std::string(command->name) + " "));
    EXPECT_THAT(help.out, HasSubstr(std::string(command->summary)));
  }
  EXPECT_LE(std::count(help.out.begin(), help.out.end(), '\n'), 24);
  EXPECT_EQ(Call({"-h"}).out, help.out);
  EXPECT_EQ(Call({"help"}).out, help.out);
}

TEST(Main, EveryCommandOfThisLayerExplainsItself) {
  for (const char* name : {"version"}) {
    const Result help = Call({name, "--help"});
    EXPECT_EQ(help.status, 0) << name;
    EXPECT_THAT(help.out, HasSubstr(std::string("mete ") + name)) << name;
    EXPECT_EQ(Call({"help", name}).out, help.out);
  }
}

TEST(Main, WrongLinesEndWithUsageAsTheLastLine) {
  const Result unknown = Call({"emulaet"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.err, "mete: usage: no command is called \"emulaet\"; did you mean emulate?\n");
  EXPECT_EQ(Call({"frobnicate"}).err, "mete: usage: no command is called \"frobnicate\"; `mete --help` lists them\n");
  EXPECT_EQ(Call({"version", "--colour"}).status, 2);
  EXPECT_THAT(Call({"version", "--colour"}).err, HasSubstr("--colour"));
  EXPECT_THAT(Call({"version", "--colour"}).err, EndsWith("`mete version --help` shows what it takes\n"));
  EXPECT_EQ(Call({"--json", "version"}).status, 2);
  EXPECT_EQ(Call({""}).status, 2);
  const Result none = Call({});
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.err, "mete: usage: name a command\n");
}

TEST(Main, PrintsItsVersion) {
  EXPECT_EQ(Call({"version"}).out, Call({"--version"}).out);
  EXPECT_THAT(Call({"version"}).out, testing::MatchesRegex("mete [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const auto json = ParseJson(Call({"version", "--json"}).out, "version");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ("mete " + json->at("version").get<std::string>() + "\n", Call({"version"}).out);
}

// The test stands in another folder than the programs, so there is no mete-emulator beside it.
TEST(Main, SaysWhenTheEmulatorIsMissing) {
  const Result result = Call({"emulate", "status"});
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.err, HasSubstr("mete: lacks: the emulator cannot be started"));
}

}  // namespace
}  // namespace mete::cli
