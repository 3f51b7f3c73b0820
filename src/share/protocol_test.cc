#include "share/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mete::share {
namespace {

TEST(Protocol, CommandsSurviveTheirJson) {
  Command make;
  make.op = Op::kMake;
  make.id = RandomId();
  make.run = true;
  make.hint = "app\xff";
  make.request.share = "team";
  make.request.gpu = "GPU-1";
  make.request.memory = Bytes{8 * kGiB};
  make.request.compute = plan::Compute{plan::ComputeMode::kSoft, Percent{1250}};
  const StatusOr<Command> back = ReadCommand(WriteCommand(make));
  ASSERT_TRUE(back.ok()) << Message(back.status());
  EXPECT_EQ(back->op, Op::kMake);
  EXPECT_EQ(back->id, make.id);
  EXPECT_TRUE(back->run);
  EXPECT_EQ(back->request.share, "team");
  EXPECT_EQ(back->request.memory, make.request.memory);
  EXPECT_EQ(back->request.compute, make.request.compute);

  Command set;
  set.op = Op::kSet;
  set.share = "team";
  set.memory = {true, std::nullopt};
  const StatusOr<Command> change = ReadCommand(WriteCommand(set));
  ASSERT_TRUE(change.ok());
  EXPECT_TRUE(change->memory.given);
  EXPECT_FALSE(change->memory.value.has_value());
  EXPECT_FALSE(change->compute.given);
}

TEST(Protocol, StrangersRequestsAreChecked) {
  for (const char* bad :
       {"", "[]", "{}", "null", R"({"version":1})", R"({"version":1,"op":"fly"})", R"({"version":1,"op":"make"})",
        R"({"version":1,"op":"make","id":"../../../../etc/passwd0000000000"})", R"({"version":1,"op":"show"})",
        R"({"version":1,"op":"show","share":7})", R"({"version":1,"op":"set","share":"a","memory":-1})",
        R"({"version":1,"op":"set","share":"a","memory":0})",
        R"({"version":1,"op":"set","share":"a","memory":18446744073709551615})",
        R"({"version":1,"op":"set","share":"a","compute":{"mode":"hard","hundredths":10001}})",
        R"({"version":1,"op":"set","share":"a","compute":{"mode":"fast","hundredths":1}})",
        R"({"version":1,"op":"list","gpus":0})"}) {
    EXPECT_EQ(ExitCodeFor(ReadCommand(bad).status()), bad == std::string("{}") ? ExitCode::kRefused : ExitCode::kUsage)
        << bad;
  }
  EXPECT_EQ(ExitCodeFor(ReadCommand(R"({"version":2,"op":"list"})").status()), ExitCode::kRefused);
}

TEST(Protocol, RepliesKeepTheKindOfError) {
  const std::vector<Status> errors = {Usage("u {}", 1), Refused("r"), Lacks("l"), Fault("f")};
  for (const Status& error : errors) {
    const StatusOr<Json> back = ReadReply(WriteReply(error));
    EXPECT_EQ(ExitCodeFor(back.status()), ExitCodeFor(error));
    EXPECT_EQ(Message(back.status()), Message(error));
  }
  EXPECT_EQ((*ReadReply(WriteReply(Json({{"a", 1}}))))["a"], 1);
  EXPECT_EQ(ExitCodeFor(ReadReply("{}").status()), ExitCode::kFault);
  EXPECT_EQ(ExitCodeFor(ReadReply("x").status()), ExitCode::kFault);
}

TEST(Protocol, FramesComeInPieces) {
  const std::string stream = Frame("one") + Frame("") + Frame("three");
  Unframer unframer(16);
  std::vector<std::string> got;
  for (const char c : stream) {
    unframer.Append({&c, 1});
    for (;;) {
      auto next = unframer.Next();
      ASSERT_TRUE(next.ok());
      if (!*next) break;
      got.push_back(**next);
    }
  }
  EXPECT_THAT(got, ::testing::ElementsAre("one", "", "three"));
  unframer.Append(Frame(std::string(17, 'x')).substr(0, 4));
  EXPECT_FALSE(unframer.Next().ok());
}

}  // namespace
}  // namespace mete::share
