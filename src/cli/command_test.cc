#include "cli/command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

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
  for (const char* name : {"version", "inventory", "explain"}) {
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

TEST(Main, ARootThatIsMissingIsTheLinesFaultAndOneWithoutDriverTheMachines) {
  const Result missing = Call({"inventory", "--driver-root", "/no/such/root"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, HasSubstr("mete: usage: the driver root /no/such/root"));
  const std::string empty = testing::TempDir() + "mete_empty_root";
  std::filesystem::create_directories(empty);
  const Result lacks = Call({"inventory", "--json", "--driver-root", empty});
  std::filesystem::remove(empty);
  EXPECT_EQ(lacks.status, 4);
  EXPECT_EQ(lacks.out, "");
  EXPECT_THAT(lacks.err, HasSubstr("mete: lacks: "));
}

TEST(Main, ExplainsNamesOfSeveralWords) {
  const Result board = Call({"explain", "H100", "PCIe"});
  EXPECT_EQ(board.status, 0);
  EXPECT_THAT(board.out, HasSubstr("NVIDIA H100 PCIe"));
  const Result unknown = Call({"explain", "memory-qouta", "--json"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.out, "");
  EXPECT_EQ(unknown.err, "mete: usage: nothing is called \"memory-qouta\"; near it: memory-quota\n");
}

TEST(Main, OutputThatCannotBeWrittenIsNotSuccess) {
  std::fflush(stdout);
  const int saved = dup(STDOUT_FILENO);
  const int full = open("/dev/full", O_WRONLY);
  dup2(full, STDOUT_FILENO);
  testing::internal::CaptureStderr();
  const int status = Main({"version"});
  const std::string err = testing::internal::GetCapturedStderr();
  dup2(saved, STDOUT_FILENO);
  close(saved);
  close(full);
  clearerr(stdout);
  EXPECT_EQ(status, 4);
  EXPECT_THAT(err, HasSubstr("mete: lacks: the output could not be written"));
}

// The test stands in another folder than the programs, so there is no mete-emulator beside it.
TEST(Main, SaysWhenTheEmulatorIsMissing) {
  const Result result = Call({"emulate", "status"});
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.err, HasSubstr("mete: lacks: the emulator cannot be started"));
}

TEST(FailureText, TheLastLineSaysHowItEnded) {
  EXPECT_EQ(FailureText("usage", "no such thing"), "mete: usage: no such thing\n");
  EXPECT_EQ(FailureText("refused", "it cannot be kept:\n  GPU 0: why\n"),
            "  GPU 0: why\nmete: refused: it cannot be kept (reasons above)\n");
}

}  // namespace
}  // namespace mete::cli
