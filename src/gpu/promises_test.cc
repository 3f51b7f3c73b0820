#include "gpu/promises.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "gpu/embedded.h"

namespace mete::gpu {
namespace {

using testing::HasSubstr;

const Verdict& Cell(std::string_view variant, Promise promise) {
  const auto found = PromiseTable::BuiltIn().Find(variant);
  EXPECT_TRUE(found.ok()) << found.status();
  return (*found)->Of(promise);
}

TEST(Promises, TheEmbeddedTableIsWhole) {
  const auto table = PromiseTable::Parse(embedded::kPromises);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->variants().size(), 11U);
  for (const Variant& variant : table->variants()) {
    for (Promise promise : Promises()) {
      const Verdict& verdict = variant.Of(promise);
      EXPECT_FALSE(verdict.why.empty()) << variant.name << " " << Name(promise);
      ASSERT_FALSE(verdict.sources.empty()) << variant.name << " " << Name(promise);
      for (const std::string& id : verdict.sources) EXPECT_FALSE(table->Source(id).empty()) << id;
      EXPECT_EQ(verdict.value == Value::kConditional, verdict.condition != Condition::kNone);
      EXPECT_EQ(table->Meaning(verdict.condition).empty(), verdict.condition == Condition::kNone);
    }
    EXPECT_EQ(variant.properties.size(), 4U);
  }
  for (Value value : {Value::kYes, Value::kNo, Value::kConditional, Value::kCapOnly}) {
    EXPECT_FALSE(table->Meaning(value).empty());
  }
}

TEST(Promises, NamesReadBack) {
  for (Promise promise : Promises()) EXPECT_EQ(ParsePromise(Name(promise)).value(), promise);
  for (Mechanism mechanism : kMechanisms) EXPECT_EQ(ParseMechanism(Name(mechanism)).value(), mechanism);
  EXPECT_THAT(Message(ParsePromise("memory-qouta").status()), HasSubstr("near it: memory-quota"));
  EXPECT_THAT(Message(ParsePromise("x").status()), HasSubstr("enforced-outside"));
  EXPECT_THAT(Message(ParseMechanism("mgi").status()), HasSubstr("mig"));
  EXPECT_EQ(ParsePromise("memory_quota").status().code(), absl::StatusCode::kNotFound);
}

// Who prefers a mechanism that is stronger on paper must not be misled by the table: these follow from the sources.
TEST(Promises, InterceptionIsNeverCalledEnforcedOutside) {
  EXPECT_EQ(Cell("intercept", Promise::kEnforcedOutside).value, Value::kNo);
  EXPECT_EQ(Cell("intercept", Promise::kMemoryQuota).value, Value::kCapOnly);
  EXPECT_EQ(Cell("intercept", Promise::kComputeCap).value, Value::kConditional);
  EXPECT_EQ(Cell("intercept", Promise::kComputeCap).condition, Condition::kInForce);
  EXPECT_EQ(Cell("intercept", Promise::kComputeReservation).value, Value::kCapOnly);
}

TEST(Promises, FaultContainmentThatCannotBeCheckedIsNotPromised) {
  for (const char* variant : {"time-slicing", "intercept"}) {
    EXPECT_EQ(Cell(variant, Promise::kFaultContainment).value, Value::kConditional) << variant;
    EXPECT_EQ(Cell(variant, Promise::kFaultContainment).condition, Condition::kUnchecked) << variant;
  }
  EXPECT_EQ(Cell("mps", Promise::kFaultContainment).value, Value::kNo);
  EXPECT_EQ(Cell("mig", Promise::kFaultContainment).value, Value::kYes);
}

TEST(Promises, OnlyParallelMechanismsPromiseConcurrency) {
  for (const Variant& variant : PromiseTable::BuiltIn().variants()) {
    const bool parallel = variant.mechanism == Mechanism::kMps || variant.mechanism == Mechanism::kMig ||
                          variant.name == "vgpu-mig-backed";
    EXPECT_EQ(variant.Of(Promise::kConcurrency).value == Value::kYes, parallel) << variant.name;
  }
}

TEST(Promises, ReservationsOrderAsTheHardwareDoes) {
  const auto yes = [](std::string_view variant) {
    return Cell(variant, Promise::kComputeReservation).value == Value::kYes;
  };
  EXPECT_TRUE(yes("exclusive") && yes("mig") && yes("vgpu-mig-backed") && yes("vgpu-fixed-share"));
  EXPECT_FALSE(yes("time-slicing") || yes("mps") || yes("mps-limits") || yes("vgpu-best-effort"));
  EXPECT_EQ(Cell("mps-static-partitions", Promise::kComputeReservation).condition, Condition::kOwnPartition);
}

TEST(Promises, RefusesTablesThatAreNotWhole) {
  const std::string text(embedded::kPromises);
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } kCases[] = {
      {"mete/promises/1", "mete/promises/9", "schema"},
      {"src: [known]", "src: [nobody]", "no source is called \"nobody\""},
      {"when: in-force", "when: some-day", "no condition is called \"some-day\""},
      {"value: \"yes\", why: \"the tenant owns", "value: maybe, why: \"the tenant owns", "\"value\" must be"},
      {"value: \"yes\", why: \"the tenant owns", "value: \"yes\", when: agent, why: \"the tenant owns",
       "\"when\" belongs"},
      {"mechanism: mig\n", "mechanism: mgi\n", "no mechanism is called"},
      {"      concurrency:", "      concurency:", "\"concurrency\" is missing"},
  };
  for (const auto& test : kCases) {
    std::string edited = text;
    const size_t at = edited.find(test.from);
    ASSERT_NE(at, std::string::npos) << test.from;
    edited.replace(at, std::string_view(test.from).size(), test.to);
    const auto table = PromiseTable::Parse(edited);
    ASSERT_FALSE(table.ok()) << test.to;
    EXPECT_THAT(Message(table.status()), HasSubstr(test.message));
  }
}

TEST(Promises, TheDocumentationSaysTheSame) {
  const auto page = ReadFile(std::string(METE_DOCS_FOLDER) + "/promises.md");
  ASSERT_TRUE(page.ok()) << page.status();
  for (Promise promise : Promises()) {
    const std::string& meaning = PromiseTable::BuiltIn().Note(promise).meaning;
    EXPECT_THAT(*page, HasSubstr(fmt::format("| `{}` | {}", Name(promise), meaning.substr(0, meaning.find(':')))));
  }
}

TEST(Mechanisms, TheEmbeddedNotesAreWhole) {
  const auto notes = MechanismNotes::Parse(embedded::kMechanisms);
  ASSERT_TRUE(notes.ok()) << notes.status();
  for (Mechanism mechanism : kMechanisms) {
    EXPECT_FALSE((*notes)[mechanism].summary.empty());
    for (const Fact& fact : (*notes)[mechanism].facts) {
      for (const std::string& id : fact.sources) EXPECT_FALSE(notes->Source(id).empty()) << id;
    }
  }
  EXPECT_EQ(notes->Source("nobody"), "");
  EXPECT_FALSE(MechanismNotes::Parse("schema: mete/mechanisms/1").ok());
}

}  // namespace
}  // namespace mete::gpu
