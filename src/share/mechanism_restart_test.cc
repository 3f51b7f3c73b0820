// Brokers that are killed while a mechanism changes the GPU: at every point between what is written down and what is
// done. The next one leaves the GPU as it was found, or with whole shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "share/testing/node.h"
#include "share/testing/shared_device.h"

namespace mete::share {
namespace {

using nvml::ComputeMode;
using nvml::MigMode;
using testing::Node;
using testing::SharedDevice;

struct KillCase {
  const char* via;
  const char* point;
};

class KilledInAMechanism : public ::testing::TestWithParam<KillCase> {
 protected:
  static void Ask(Command& command, const std::string& via) {
    command.request.via = via;
    if (via == "exclusive") command.request.processes = 1;
    if (via == "mig") command.request.memory = Bytes{4 * kGiB};
  }
};

void ExpectAsFound(const SharedDevice& gpu, const std::string& when) {
  EXPECT_EQ(*gpu.Mode(), ComputeMode::kDefault) << when;
  EXPECT_EQ(gpu.Mig()->current, MigMode::kDisabled) << when;
  EXPECT_TRUE(gpu.GpuInstances()->empty()) << when;
}

TEST_P(KilledInAMechanism, TheNextBrokerCompletesOrUndoes) {
  const auto [via, point] = GetParam();
  Node node;
  const auto gpu = std::make_shared<SharedDevice>();
  node.driver.devices[0] = gpu;
  const pid_t first = node.Fork(point);
  const auto ask = [via = std::string(via)](Command& command) { Ask(command, via); };
  (void)node.MakeShare("a", ask);
  (void)node.Do(Op::kRelease, "a");
  ASSERT_TRUE(Node::Kill(first));
  ASSERT_TRUE(node.Start().ok());
  const Json list = *node.Do(Op::kList, {});
  if (list["shares"].empty()) {
    ExpectAsFound(*gpu, "healed");
    const StatusOr<Json> made = node.MakeShare("a", ask);
    ASSERT_TRUE(made.ok()) << Message(made.status());
  }
  const StatusOr<Json> shown = node.Do(Op::kShow, "a");
  ASSERT_TRUE(shown.ok()) << Message(shown.status());
  EXPECT_TRUE((*shown)["in_force"].get<bool>()) << shown->dump(1);
  EXPECT_EQ(*gpu->Mode(), std::string(via) == "exclusive" ? ComputeMode::kExclusiveProcess : ComputeMode::kDefault);
  EXPECT_EQ(gpu->GpuInstances()->size(), std::string(via) == "mig" ? 1u : 0u);
  EXPECT_TRUE(node.Do(Op::kRelease, "a").ok());
  ExpectAsFound(*gpu, "released");
  EXPECT_TRUE(std::filesystem::is_empty(node.places.grants));
}

INSTANTIATE_TEST_SUITE_P(
    Points, KilledInAMechanism,
    ::testing::Values(KillCase{"exclusive", "make: row written"}, KillCase{"exclusive", "exclusive: mode written down"},
                      KillCase{"exclusive", "exclusive: mode set"}, KillCase{"exclusive", "put in force"},
                      KillCase{"exclusive", "make: in force"}, KillCase{"exclusive", "end: row written"},
                      KillCase{"exclusive", "exclusive: mode set back"}, KillCase{"exclusive", "end: released"},
                      KillCase{"mig", "make: row written"}, KillCase{"mig", "mig: mode written down"},
                      KillCase{"mig", "mig: mode set"}, KillCase{"mig", "mig: instance written down"},
                      KillCase{"mig", "mig: GPU instance made"}, KillCase{"mig", "mig: compute instance made"},
                      KillCase{"mig", "put in force"}, KillCase{"mig", "make: in force"},
                      KillCase{"mig", "end: row written"}, KillCase{"mig", "mig: compute instance gone"},
                      KillCase{"mig", "mig: GPU instance gone"}, KillCase{"mig", "mig: mode set back"},
                      KillCase{"mig", "end: released"}),
    [](const auto& test) {
      std::string name = std::string(test.param.via) + "_" + test.param.point;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

}  // namespace
}  // namespace mete::share
