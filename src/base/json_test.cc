#include "base/json.h"

#include <gtest/gtest.h>

namespace mete {
namespace {

TEST(Json, KeepsKeyOrder) {
  Json value;
  value["zebra"] = 1;
  value["apple"] = Json::array({"x"});
  EXPECT_EQ(ToText(value), "{\n  \"zebra\": 1,\n  \"apple\": [\n    \"x\"\n  ]\n}\n");
}

TEST(Json, ReplacesBytesThatAreNotUtf8) {
  Json value;
  value["name"] = "GPU\xff";
  EXPECT_EQ(ToText(value), "{\n  \"name\": \"GPU\xEF\xBF\xBD\"\n}\n");
}

TEST(Json, RefusesBrokenAndDeepText) {
  EXPECT_EQ(ExitCodeFor(ParseJson("{\"a\":", "engine.json").status()), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(ParseJson("", "engine.json").status()), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(ParseJson(std::string(100000, '['), "engine.json").status()), ExitCode::kUsage);
  EXPECT_TRUE(ParseJson("{\"a\": \"[[[[\\\"[[[[\"}", "x", 2).ok());
}

}  // namespace
}  // namespace mete
