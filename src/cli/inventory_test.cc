#include "cli/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/golden.h"
#include "nvml/fake.h"

namespace mete::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

mechanism::Node Found() {
  mechanism::Node node;
  node.roots.driver = "/srv/node";
  node.roots.sys = testing::TempDir() + "mete_inventory_sys";
  node.found_by = mechanism::FoundBy::kEmulatedNode;
  return node;
}

nvml::FakeDevice& AddT4(nvml::FakeLibrary& library) {
  nvml::FakeDevice& t4 = library.Add();
  t4.name_value = "Tesla T4";
  t4.capability = {7, 5};
  t4.pci_bus_id = "00000000:3B:00.0";
  t4.memory = {{15360 * kMiB}, {256 * kMiB}, {0}, {15104 * kMiB}};
  t4.mig = {};
  return t4;
}

TEST(Inventory, ReadsAsWritten) {
  nvml::FakeLibrary library;
  library.emulated_value = true;
  library.Add();
  library.Add();
  AddT4(library);
  const auto inventory = TakeInventory(Found(), library);
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  ExpectGolden("inventory.txt", InventoryText(*inventory, 120));
}

TEST(Inventory, SaysWhyNot) {
  nvml::FakeLibrary library;
  AddT4(library);
  const auto inventory = TakeInventory(Found(), library);
  ASSERT_TRUE(inventory.ok());
  const std::string text = InventoryText(*inventory, 0);
  EXPECT_THAT(text, HasSubstr("not, because it has no MIG (compute capability 7.5 < 8.0)"));
  EXPECT_THAT(text, HasSubstr("not built yet"));
  EXPECT_THAT(text, Not(HasSubstr("EMULATED")));
}

TEST(Inventory, JsonSaysTheSame) {
  nvml::FakeLibrary library;
  library.emulated_value = true;
  library.Add().mig = {nvml::MigMode::kDisabled, nvml::MigMode::kEnabled};
  const Json json = InventoryJson(TakeInventory(Found(), library).value());
  EXPECT_EQ(json.at("node").at("driver_root"), "/srv/node");
  EXPECT_EQ(json.at("node").at("found_by"), "emulated-node");
  EXPECT_EQ(json.at("emulated"), true);
  EXPECT_EQ(json.at("driver_version"), "580.65.06");
  EXPECT_EQ(json.at("cuda_version"), "13.0");
  const Json& gpu = json.at("gpus").at(0);
  EXPECT_EQ(gpu.at("board"), "a100-sxm4-40gb");
  EXPECT_EQ(gpu.at("memory").at("total_bytes"), 40960 * kMiB);
  EXPECT_EQ(gpu.at("mig"), "off, on after a reset");
  EXPECT_EQ(gpu.at("compute_capability"), "8.0");
  bool intercept = false;
  for (const Json& variant : gpu.at("mechanisms")) {
    if (variant.at("variant") != "intercept") continue;
    intercept = true;
    EXPECT_EQ(variant.at("standing"), "supported");
    EXPECT_EQ(variant.at("promises").at("compute-cap").at("keeps"), "while-in-force");
    EXPECT_EQ(variant.at("promises").at("memory-quota").at("keeps"), "while-all-granted");
    EXPECT_EQ(variant.at("promises").at("enforced-outside").at("keeps"), "no");
  }
  EXPECT_TRUE(intercept);
}

TEST(Inventory, AGpuThatDoesNotAnswerIsListedWithItsTrouble) {
  nvml::FakeLibrary library;
  library.Add().failure = Fault("GPU 0: has fallen off the bus");
  library.Add();
  const auto inventory = TakeInventory(Found(), library);
  ASSERT_TRUE(inventory.ok());
  const std::string text = InventoryText(*inventory, 0);
  EXPECT_THAT(text, HasSubstr("\nGPU 0: has fallen off the bus"));
  EXPECT_THAT(text, HasSubstr("unknown"));
  EXPECT_EQ(InventoryJson(*inventory).at("gpus").at(0).at("memory"), Json());
}

TEST(Inventory, ADriverWithoutGpusSaysTheWaysOn) {
  const auto inventory = TakeInventory(Found(), nvml::FakeLibrary());
  EXPECT_EQ(ExitCodeFor(inventory.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(inventory.status()), HasSubstr("shows no GPU"));
  EXPECT_THAT(Message(inventory.status()), HasSubstr("mete emulate up"));
}

TEST(Inventory, SeesTheVgpuHostDriverBelowTheSysRoot) {
  nvml::FakeLibrary library;
  AddT4(library);
  const mechanism::Node node = Found();
  const std::filesystem::path types = node.roots.sys + "/class/mdev_bus/0000:3b:00.0";
  EXPECT_FALSE(TakeInventory(node, library)->gpus[0].facts.vgpu_host_driver);
  std::filesystem::create_directories(types);
  EXPECT_TRUE(TakeInventory(node, library)->gpus[0].facts.vgpu_host_driver);
  std::filesystem::remove_all(node.roots.sys);
}

}  // namespace
}  // namespace mete::cli
