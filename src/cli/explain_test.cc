#include "cli/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/text.h"
#include "cli/golden.h"
#include "gpu/catalogue.h"
#include "gpu/promises.h"

namespace mete::cli {
namespace {

using testing::HasSubstr;

std::vector<std::string> EverySubject() {
  std::vector<std::string> names{""};
  for (gpu::Promise promise : gpu::Promises()) names.emplace_back(Name(promise));
  for (gpu::Mechanism mechanism : gpu::kMechanisms) names.emplace_back(Name(mechanism));
  for (const gpu::Variant& variant : gpu::PromiseTable::BuiltIn().variants()) names.push_back(variant.name);
  for (const gpu::Board& board : gpu::Catalogue::BuiltIn().boards()) names.push_back(board.nvml_name);
  return names;
}

TEST(Explain, ReadsAsWritten) {
  ExpectGolden("explain.txt", ExplainText("", 100).value());
  ExpectGolden("explain_t4.txt", ExplainText("T4", 100).value());
  ExpectGolden("explain_compute_cap.txt", ExplainText("compute-cap", 100).value());
  ExpectGolden("explain_mps.txt", ExplainText("mps", 100).value());
  ExpectGolden("explain_intercept.txt", ExplainText("intercept", 100).value());
}

TEST(Explain, EverySubjectFitsTheTerminalAndHasJson) {
  for (const std::string& subject : EverySubject()) {
    const auto text = ExplainText(subject, 100);
    ASSERT_TRUE(text.ok()) << subject << text.status();
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(DisplayWidth(line), 100U) << subject << ": " << line;
    EXPECT_TRUE(ExplainJson(subject).ok()) << subject;
  }
}

TEST(Explain, EveryCitedSourceIsExplained) {
  const auto json = ExplainJson("memory-quota");
  ASSERT_TRUE(json.ok());
  for (const auto& [variant, verdict] : json->at("variants").items()) {
    EXPECT_FALSE(verdict.at("sources").empty()) << variant;
    for (const auto& [id, meaning] : verdict.at("sources").items()) EXPECT_NE(meaning, "") << variant << " " << id;
  }
  EXPECT_EQ(json->at("variants").at("intercept").at("value"), "cap-only");
  EXPECT_EQ(ExplainJson("t4")->at("fields").at("memory of one context").at("estimate"), true);
}

TEST(Explain, UnknownNamesGetNearOnes) {
  const auto near = ExplainText("memory-qouta", 100);
  EXPECT_EQ(ExitCodeFor(near.status()), ExitCode::kUsage);
  EXPECT_THAT(Message(near.status()), HasSubstr("near it: memory-quota"));
  EXPECT_THAT(Message(ExplainText("h100", 100).status()), HasSubstr("H100 PCIe"));
  EXPECT_THAT(Message(ExplainJson("zzzzzzzzz").status()), HasSubstr("`mete explain` lists"));
}

TEST(Explain, IgnoresCaseAndVendorWords) {
  EXPECT_EQ(ExplainText("TESLA T4", 100).value(), ExplainText("t4", 100).value());
  EXPECT_EQ(ExplainText("MIG", 100).value(), ExplainText("mig", 100).value());
}

}  // namespace
}  // namespace mete::cli
