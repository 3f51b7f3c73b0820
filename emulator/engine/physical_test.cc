// Memory that several processes hold: counted on the GPU while anything keeps it, and for one process at a time.
#include "emulator/engine/physical.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "emulator/engine/test_node.h"

namespace mete::emulator {
namespace {

constexpr uint64_t kBytes = 64 << 20;

// What happens to memory that process 1 made and exported: each in turn, in every order.
//   r: 1 releases it   1: 1 dies   i, j: 2 and 3 import it   d, e: they drop it   2, 3: they die   c: the descriptor
//   closes
class Play {
 public:
  Play() : node_("T4"), tenants_{node_.AddTenant(1), node_.AddTenant(2), node_.AddTenant(3)} {
    Request request = TestNode::Make(MessageType::kMakePhysical);
    request.context = tenants_[0].context;
    request.amount = kBytes;
    name_ = node_.Call(tenants_[0], request).a;
    request = TestNode::Make(MessageType::kExportPhysical);
    request.amount = name_;
    EXPECT_EQ(node_.Call(tenants_[0], request, nullptr, [this] { return open_; }).result, 0);
  }

  void Step(char step) {
    switch (step) {
      case 'r': Drop(0); break;
      case 'i': Import(1); break;
      case 'j': Import(2); break;
      case 'd': Drop(1); break;
      case 'e': Drop(2); break;
      case 'c': open_ = false; break;
      default: Die(static_cast<size_t>(step - '1'));
    }
    Check();
  }

 private:
  void Drop(size_t i) {
    const bool expected = alive_[i] && holds_[i];
    const Result result = node_.Ask(tenants_[i], MessageType::kDropPhysical, 0, 0, name_);
    EXPECT_EQ(result, expected ? Result::kOk : alive_[i] ? Result::kNoSuchObject : Result::kLost);
    Leave(i);
  }
  void Import(size_t i) {
    if (!alive_[i]) return;
    const Result result = node_.Ask(tenants_[i], MessageType::kHoldPhysical, 0, 0, name_);
    EXPECT_EQ(result, Kept() ? Result::kOk : Result::kNoSuchObject);
    if (result != Result::kOk) return;
    holds_[i] = true;
    order_.push_back(i);
  }
  void Die(size_t i) {
    if (alive_[i]) node_.End(tenants_[i]);
    alive_[i] = false;
    Leave(i);
  }
  void Leave(size_t i) {
    holds_[i] = false;
    std::erase(order_, i);
  }
  bool Kept() const { return open_ || !order_.empty(); }

  void Check() {
    const uint64_t context = node_.engine().settings().gpus[0].info.context_bytes;
    uint64_t contexts = 0;
    for (size_t i = 0; i < 3; ++i) {
      const bool charged = !order_.empty() && order_.front() == i;
      EXPECT_EQ(node_.BytesOf(static_cast<uint32_t>(i + 1)), (alive_[i] ? context : 0) + (charged ? kBytes : 0));
      contexts += alive_[i] ? context : 0;
    }
    EXPECT_EQ(node_.State().memory_used_bytes, contexts + (Kept() ? kBytes : 0));
  }

  TestNode node_;
  TestNode::Process tenants_[3];
  uint64_t name_ = 0;
  bool open_ = true, alive_[3] = {true, true, true}, holds_[3] = {true, false, false};
  std::vector<size_t> order_ = {0};  // who holds it, the maker first
};

TEST(PhysicalMemoryTest, IsCountedOnceWhileAnythingKeepsItInEveryOrder) {
  for (std::string steps : {"1cidr", "12cij", "cdijr", "23ceij"}) {
    std::sort(steps.begin(), steps.end());
    do {
      SCOPED_TRACE(steps);
      Play play;
      for (const char step : steps) play.Step(step);
      if (::testing::Test::HasFailure()) return;
    } while (std::next_permutation(steps.begin(), steps.end()));
  }
}

TEST(PhysicalMemoryTest, IsHeldAsOftenAsItIsTaken) {
  PhysicalMemory memory;
  const uint64_t name = memory.Make(1, kBytes, 7, 9);
  EXPECT_TRUE(memory.Hold(name, 7));
  EXPECT_FALSE(memory.Drop(name, 8));
  EXPECT_FALSE(memory.Drop(name, 7)->gone);
  const auto change = memory.Drop(name, 7);
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->gone);
  EXPECT_EQ(change->tag, 9u);
  EXPECT_EQ(change->gpu, 1u);
  EXPECT_FALSE(memory.Hold(name, 7));
  EXPECT_FALSE(memory.Drop(name, 7));
  EXPECT_FALSE(memory.Export(name, 7, [] { return true; }));
}

TEST(PhysicalMemoryTest, OnlyWhoHoldsItGivesItAway) {
  TestNode node("T4");
  TestNode::Process maker = node.AddTenant(1), other = node.AddTenant(2);
  Request request = TestNode::Make(MessageType::kMakePhysical);
  request.context = maker.context;
  request.amount = kBytes;
  const uint64_t name = node.Call(maker, request).a;
  request = TestNode::Make(MessageType::kExportPhysical);
  request.amount = name;
  EXPECT_EQ(static_cast<Result>(node.Call(maker, request).result), Result::kInvalid) << "no descriptor came with it";
  EXPECT_EQ(static_cast<Result>(node.Call(other, request, nullptr, [] { return true; }).result), Result::kNoSuchObject);
  EXPECT_EQ(node.Ask(maker, MessageType::kDropPhysical, 0, 0, name), Result::kOk);
  EXPECT_EQ(node.Ask(maker, MessageType::kDropPhysical, 0, 0, name), Result::kNoSuchObject);
}

TEST(PhysicalMemoryTest, SharedMemoryOutlivesItsContextAndTheLimitHolds) {
  TestNode node("T4");
  TestNode::Process maker = node.AddTenant(1), other = node.AddTenant(2);
  const uint64_t contexts = node.State().memory_used_bytes;
  ASSERT_EQ(node.Ask(maker, MessageType::kReserveMemory, 0, 0, 2 * kBytes), Result::kOk);
  EXPECT_EQ(node.Ask(maker, MessageType::kSharePhysical, 0, 0, 3 * kBytes), Result::kInvalid);
  EXPECT_EQ(node.Ask(maker, MessageType::kSharePhysical, 0, 0, 1), Result::kInvalid);
  Request request = TestNode::Make(MessageType::kSharePhysical);
  request.context = maker.context;
  request.amount = kBytes;
  const uint64_t name = node.Call(maker, request).a;
  EXPECT_EQ(node.Ask(maker, MessageType::kReturnMemory, 0, 0, 2 * kBytes), Result::kRefused) << "half is not its own";
  EXPECT_EQ(node.State().memory_used_bytes, contexts + 2 * kBytes);
  EXPECT_EQ(node.Ask(other, MessageType::kHoldPhysical, 0, 0, name), Result::kOk);
  EXPECT_EQ(node.Ask(maker, MessageType::kDestroyContext), Result::kOk);
  EXPECT_EQ(node.BytesOf(1), kBytes) << "without a context, but it holds it";
  EXPECT_EQ(node.Ask(other, MessageType::kMakePhysical, 0, 0, 1ull << 40), Result::kOutOfMemory);
  node.End(maker);
  EXPECT_EQ(node.BytesOf(2), contexts / 2 + kBytes);
  node.End(other);
  EXPECT_EQ(node.State().memory_used_bytes, 0u);
}

}  // namespace
}  // namespace mete::emulator
