// `nvidia-smi mig`, `-mig` and what MIG adds to the other answers, over a GPU whose instances are a list.
#include "emulator/smi/mig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "emulator/smi/command.h"

namespace mete::emulator::smi {
namespace {

using testing::HasSubstr;
using testing::Not;

MigProfileRow Profile(uint32_t id, const char* name, uint32_t slices, uint32_t size, uint64_t mib, uint32_t total,
                      std::vector<uint32_t> starts) {
  MigProfileRow row;
  row.id = id;
  row.name = name;
  row.slices = slices;
  row.sm_count = slices * 14;
  row.memory_mib = mib;
  row.engines.copy = slices;
  row.engines.decoders = slices / 2;
  row.free = row.total = total;
  row.starts = std::move(starts);
  row.size = size;
  return row;
}

// An A100 of 40 GB with some of its profiles.
class FakeMig : public MigSource {
 public:
  Exit refusal = kOk;
  std::string word = "Insufficient Permissions";
  bool mode_waits = false;
  std::vector<std::pair<uint32_t, bool>> modes;
  std::vector<MigGpuInstance> made;  // in the order of their making

  Exit ReadMig(uint32_t, bool instances, MigNode* node, std::string* why) override {
    if (instances && refusal == kNoPermission) return Refuse(why);
    node->profiles = Profiles();
    for (MigProfileRow& profile : node->profiles) {
      profile.free = 0;
      for (const uint32_t start : profile.starts) profile.free += Fits(start, profile.size) ? 1 : 0;
      profile.free = std::min(profile.free, profile.total);
    }
    if (!instances) return kOk;
    for (const MigProfileRow& profile : node->profiles) {
      std::vector<MigGpuInstance> of_profile;
      std::copy_if(made.begin(), made.end(), std::back_inserter(of_profile),
                   [&](const auto& each) { return each.profile == profile.id; });
      std::sort(of_profile.begin(), of_profile.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
      node->gpu_instances.insert(node->gpu_instances.end(), of_profile.begin(), of_profile.end());
    }
    return kOk;
  }
  Exit CreateGpuInstance(uint32_t, uint32_t profile, std::optional<uint32_t> start, uint32_t* id,
                         std::string* why) override {
    if (refusal != kOk) return Refuse(why);
    for (const MigProfileRow& each : Profiles()) {
      if (each.id != profile) continue;
      for (const uint32_t at : each.starts) {
        if ((start && *start != at) || !Fits(at, each.size)) continue;
        MigGpuInstance instance;
        instance.id = *id = each.size == 1 ? 7 + at : each.size == 4 ? 1 + at / 4 : 0;
        instance.profile = profile;
        instance.start = at;
        instance.size = each.size;
        for (uint32_t slices = 1; slices <= each.slices; ++slices) {
          const bool whole = slices == each.slices;
          const std::string name = (whole ? "" : std::to_string(slices) + "c.") + each.name;
          instance.compute_profiles.push_back(
              Profile(slices - 1, name.c_str(), slices, slices, 0, each.slices / slices, {}));
          for (uint32_t first = 0; first + slices <= each.slices; ++first) {
            instance.compute_profiles.back().starts.push_back(first);
          }
        }
        made.push_back(std::move(instance));
        return kOk;
      }
      *why = "Insufficient Resources";
      return kOther;
    }
    *why = "Not Found";
    return kNotFound;
  }
  Exit DestroyGpuInstance(uint32_t, uint32_t id, std::string* why) override {
    const auto found = Find(id);
    if (found == made.end() || !found->compute_instances.empty()) {
      *why = "In use by another client";
      return kOther;
    }
    made.erase(found);
    return kOk;
  }
  Exit CreateComputeInstance(uint32_t, uint32_t gpu_instance, uint32_t profile, std::optional<uint32_t> start,
                             uint32_t* id, std::string* why) override {
    MigGpuInstance& instance = *Find(gpu_instance);
    const uint32_t next = static_cast<uint32_t>(instance.compute_instances.size());
    uint32_t used = 0;
    for (const MigComputeInstance& each : instance.compute_instances) used += each.size;
    if (used + profile + 1 > instance.compute_profiles.size()) {
      *why = "Insufficient Resources";
      return kOther;
    }
    instance.compute_instances.push_back({next, profile, start.value_or(used), profile + 1});
    *id = next;
    return kOk;
  }
  Exit DestroyComputeInstance(uint32_t, uint32_t gpu_instance, uint32_t id, std::string*) override {
    auto& list = Find(gpu_instance)->compute_instances;
    list.erase(std::remove_if(list.begin(), list.end(), [id](const auto& each) { return each.id == id; }), list.end());
    return kOk;
  }
  Exit SetMigMode(uint32_t gpu, bool enable, std::string* pending, std::string* why) override {
    if (refusal != kOk) return Refuse(why);
    modes.emplace_back(gpu, enable);
    if (mode_waits) *pending = word;
    return kOk;
  }

 private:
  static std::vector<MigProfileRow> Profiles() {
    return {Profile(19, "1g.5gb", 1, 1, 4864, 7, {0, 1, 2, 3, 4, 5, 6}), Profile(9, "3g.20gb", 3, 4, 19968, 2, {0, 4}),
            Profile(0, "7g.40gb", 7, 8, 40192, 1, {0})};
  }
  bool Fits(uint32_t start, uint32_t size) const {
    return std::none_of(made.begin(), made.end(), [&](const MigGpuInstance& each) {
      return start < each.start + each.size && each.start < start + size;
    });
  }
  std::vector<MigGpuInstance>::iterator Find(uint32_t id) {
    return std::find_if(made.begin(), made.end(), [id](const auto& each) { return each.id == id; });
  }
  Exit Refuse(std::string* why) const {
    *why = word;
    return refusal;
  }
};

class MigNodeSource : public SmiSource {
 public:
  FakeMig instances;
  SmiSnapshot node;
  MigNodeSource() {
    node.driver_version = "580.65.06";
    node.cuda_version = 13000;
    SmiGpu a100;
    a100.name = "NVIDIA A100-SXM4-40GB";
    a100.uuid = "GPU-aaaa";
    a100.bus_id = "00000000:07:00.0";
    a100.ecc = 1;
    a100.mig = a100.mig_pending = 1;
    SmiGpu t4;
    t4.index = 1;
    t4.name = "Tesla T4";
    t4.uuid = "GPU-bbbb";
    t4.bus_id = "00000000:08:00.0";
    node.gpus = {a100, t4};
  }
  Exit Read(unsigned, SmiSnapshot* snapshot, std::string*) override {
    *snapshot = node;
    return kOk;
  }
  Exit Set(uint32_t, SmiSetting, uint64_t, std::string*) override { return kOk; }
  Exit ReadTopology(size_t, SmiTopology*, std::string*) override { return kOk; }
  MigSource* mig() override { return &instances; }
  bool emulated() const override { return true; }
};

struct Said {
  Exit code;
  std::string text, message;
};

Said Mig(MigNodeSource* source, const std::vector<std::string>& words) {
  Request request;
  Said said;
  said.code = ParseRequest(words, &request, &said.message);
  if (said.code == kOk) said.code = Answer(request, source, &said.text, &said.message);
  return said;
}
Said Mig(MigNodeSource* source, const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return Mig(source, words);
}

TEST(SmiMigTest, ListsProfilesWithTheirOwnIds) {
  MigNodeSource source;
  const Said listed = Mig(&source, "mig -lgip");
  EXPECT_EQ(listed.code, kOk);
  EXPECT_EQ(listed.text,
            "+-------------------------------------------------------------------------------+\n"
            "| GPU instance profiles:                                                        |\n"
            "| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |\n"
            "|                                Free/Total   GiB              CE    JPEG  OFA  |\n"
            "|===============================================================================|\n"
            "|   0  MIG 1g.5gb          19     7/7        4.75       No     14     0     0   |\n"
            "|                                                               1     0     0   |\n"
            "+-------------------------------------------------------------------------------+\n"
            "|   0  MIG 3g.20gb          9     2/2        19.50      No     42     1     0   |\n"
            "|                                                               3     0     0   |\n"
            "+-------------------------------------------------------------------------------+\n"
            "|   0  MIG 7g.40gb          0     1/1        39.25      No     98     3     0   |\n"
            "|                                                               7     0     0   |\n"
            "+-------------------------------------------------------------------------------+\n");
  EXPECT_EQ(Mig(&source, "mig -lgipp -i 0").text,
            "GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1\n"
            "GPU  0 Profile ID  9 Placements: {0,4}:4\n"
            "GPU  0 Profile ID  0 Placement : {0}:8\n");
  source.node.gpus[0].mig = 0;
  EXPECT_EQ(Mig(&source, "mig -lgip").code, kOk) << "a board's profiles are known with the mode off";
}

TEST(SmiMigTest, MakesListsAndEndsInstances) {
  MigNodeSource source;
  EXPECT_EQ(
      Mig(&source, "mig -cgi 9,1g.5gb -C").text,
      "Successfully created GPU instance ID  1 on GPU  0 using profile MIG 3g.20gb (ID  9)\n"
      "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  1 using profile MIG 3g.20gb (ID  2)\n"
      "Successfully created GPU instance ID 11 on GPU  0 using profile MIG 1g.5gb (ID 19)\n"
      "Successfully created compute instance ID  0 on GPU  0 GPU instance ID 11 using profile MIG 1g.5gb (ID  0)\n");
  EXPECT_EQ(Mig(&source, std::vector<std::string>{"mig", "-cgi", "MIG 1g.5gb:6", "-i", "GPU-aaaa"}).text,
            "Successfully created GPU instance ID 13 on GPU  0 using profile MIG 1g.5gb (ID 19)\n");
  EXPECT_EQ(Mig(&source, "mig -lgi").text,
            "+---------------------------------------------------------+\n"
            "| GPU instances:                                          |\n"
            "| GPU   Name               Profile  Instance   Placement  |\n"
            "|                            ID       ID       Start:Size |\n"
            "|=========================================================|\n"
            "|   0  MIG 1g.5gb            19       11          4:1     |\n"
            "+---------------------------------------------------------+\n"
            "|   0  MIG 1g.5gb            19       13          6:1     |\n"
            "+---------------------------------------------------------+\n"
            "|   0  MIG 3g.20gb            9        1          0:4     |\n"
            "+---------------------------------------------------------+\n");
  EXPECT_EQ(Mig(&source, "mig -lci").text,
            "+--------------------------------------------------------------------+\n"
            "| Compute instances:                                                 |\n"
            "| GPU     GPU       Name             Profile   Instance   Placement  |\n"
            "|       Instance                       ID        ID       Start:Size |\n"
            "|         ID                                                         |\n"
            "|====================================================================|\n"
            "|   0     11       MIG 1g.5gb           0         0          0:1     |\n"
            "+--------------------------------------------------------------------+\n"
            "|   0      1       MIG 3g.20gb          2         0          0:3     |\n"
            "+--------------------------------------------------------------------+\n");
  EXPECT_THAT(Mig(&source, "mig -lgip").text, HasSubstr("MIG 1g.5gb          19     1/7 "));
  EXPECT_EQ(Mig(&source, "mig -dgi").message, "Failed to destroy GPU instances: In use by another client");
  EXPECT_EQ(Mig(&source, "mig -dci -gi 1").text,
            "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  1\n");
  EXPECT_EQ(Mig(&source, "mig -dgi -gi 1,13").text,
            "Successfully destroyed GPU instance ID 13 from GPU  0\n"
            "Successfully destroyed GPU instance ID  1 from GPU  0\n");
  EXPECT_EQ(source.instances.made.size(), 1u);
}

TEST(SmiMigTest, MakesSeveralComputeInstancesInOneGpuInstance) {
  MigNodeSource source;
  ASSERT_EQ(Mig(&source, "mig -cgi 3g.20gb").code, kOk);
  EXPECT_THAT(Mig(&source, "mig -lcip -gi 1").text,
              HasSubstr("| Compute instance profiles:                                                           |\n"
                        "| GPU     GPU       Name             Profile  Instances   Exclusive       Shared       |\n"
                        "|       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  |\n"
                        "|         ID                                                          CE    JPEG       |\n"
                        "|======================================================================================|\n"
                        "|   0      1       MIG 1c.3g.20gb       0      3/3           14        0     0     0   |\n"
                        "|                                                                      1     0         |\n"));
  EXPECT_THAT(Mig(&source, "mig -lcip").text, HasSubstr("       MIG 3g.20gb          2*     1/1           42 "));
  EXPECT_THAT(Mig(&source, "mig -lcipp").text, HasSubstr("GPU  0 GI  1 Profile ID  0 Placements: {0,1,2}:1\n"));
  EXPECT_EQ(
      Mig(&source, "mig -cci 0,1c.3g.20gb:2 -gi 1").text,
      "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  1 using profile MIG 1c.3g.20gb (ID  "
      "0)\n"
      "Successfully created compute instance ID  1 on GPU  0 GPU instance ID  1 using profile MIG 1c.3g.20gb (ID  "
      "0)\n");
  const Said full = Mig(&source, "mig -cci");
  EXPECT_EQ(full.code, kOther);
  EXPECT_EQ(
      full.text,
      "Unable to create a compute instance on GPU  0 GPU instance ID  1 using profile 2: Insufficient Resources\n");
  EXPECT_EQ(full.message, "Failed to create compute instances: Insufficient Resources");
  EXPECT_EQ(Mig(&source, "mig -dci -ci 1").text,
            "Successfully destroyed compute instance ID  1 from GPU  0 GPU instance ID  1\n");
}

TEST(SmiMigTest, SaysWhyNot) {
  MigNodeSource source;
  for (const char* line : {"mig -lgi", "mig -lci", "mig -dgi", "mig -dci", "mig -cci", "mig -lcip"}) {
    const Said said = Mig(&source, line);
    EXPECT_EQ(said.code, kNotFound) << line;
    EXPECT_EQ(said.message, "No GPU instances found: Not Found") << line;
  }
  ASSERT_EQ(Mig(&source, "mig -cgi 9").code, kOk);
  EXPECT_EQ(Mig(&source, "mig -lci").message, "No compute instances found: Not Found");
  EXPECT_EQ(Mig(&source, "mig -lgi -gi 5").message, "No GPU instances found: Not Found");
  const Said full = Mig(&source, "mig -cgi 9,9");
  EXPECT_EQ(full.code, kOther);
  EXPECT_EQ(full.text,
            "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)\n"
            "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources\n");
  EXPECT_EQ(full.message, "Failed to create GPU instances: Insufficient Resources");
  const Said unknown = Mig(&source, "mig -cgi 4g.20gb");
  EXPECT_EQ(unknown.code, kInvalidArgument);
  EXPECT_EQ(unknown.message, "Failed to create GPU instances: Invalid Argument");

  source.instances.refusal = kNoPermission;
  EXPECT_EQ(Mig(&source, "mig -lgi").message, "Failed to display GPU instances: Insufficient Permissions");
  EXPECT_EQ(Mig(&source, "mig -lci").message, "Failed to display compute instances: Insufficient Permissions");
  EXPECT_EQ(Mig(&source, "mig -dci").code, kNoPermission);
  EXPECT_EQ(Mig(&source, "mig -cgi 19").text,
            "Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Permissions\n");

  EXPECT_EQ(Mig(&source, "mig -lgi -i 1").message, "No MIG-supported devices found.");
  source.node.gpus[0].mig = 0;
  EXPECT_EQ(Mig(&source, "mig -lgi").message, "No MIG-enabled devices found.");
  EXPECT_EQ(Mig(&source, "mig -cgi 19").code, kNotFound);
  for (const char* line : {"mig", "mig -lgi -lci", "mig -cgi", "mig -cgi ,", "mig -cgi 9:", "mig -cgi 9:x", "mig -gi x",
                           "mig -lgi -gi", "mig -lgi -C", "mig -nonsense", "mig -cci 0,", "-mig 2", "-mig 1 -pm 1"}) {
    EXPECT_EQ(Mig(&source, line).code, kInvalidArgument) << line;
  }
}

TEST(SmiMigTest, SwitchesTheMode) {
  MigNodeSource source;
  EXPECT_EQ(Mig(&source, "-i 0 -mig 1").text, "Enabled MIG Mode for GPU 00000000:07:00.0\nAll done.\n");
  EXPECT_EQ(Mig(&source, "-i 0 -mig DISABLED").text, "Disabled MIG Mode for GPU 00000000:07:00.0\nAll done.\n");
  EXPECT_EQ(source.instances.modes, (std::vector<std::pair<uint32_t, bool>>{{0, true}, {0, false}}));
  source.instances.mode_waits = true;
  source.instances.word = "In use by another client";
  Said said = Mig(&source, "-i 0 -mig 1");
  EXPECT_EQ(said.code, kOk);
  EXPECT_THAT(said.text, HasSubstr("Warning: MIG mode is in pending enable state for GPU 00000000:07:00.0:In use by "
                                   "another client\n"));
  source.instances.word = "Reset Required";
  EXPECT_THAT(Mig(&source, "-i 0 -mig 0").text, HasSubstr("try nvidia-smi --gpu-reset to make MIG mode effective"));
  source.instances.refusal = kNotAvailable;
  source.instances.word = "Not Supported";
  said = Mig(&source, "-i 1 -mig 1");
  EXPECT_EQ(said.code, kOk);
  EXPECT_EQ(said.text,
            "Unable to enable MIG Mode for GPU 00000000:08:00.0: Not Supported\nTreating as warning and moving on.\n"
            "All done.\n");
  source.instances.refusal = kNoPermission;
  source.instances.word = "Insufficient Permissions";
  said = Mig(&source, "-mig 1");
  EXPECT_EQ(said.code, kNoPermission);
  EXPECT_THAT(said.text, HasSubstr(": Insufficient Permissions\n"));
  EXPECT_THAT(said.text, Not(HasSubstr("All done")));
}

SmiMigDevice Device(uint32_t index, uint32_t gpu_instance, uint32_t compute_instance, const char* name) {
  SmiMigDevice device;
  device.index = index;
  device.name = name;
  device.uuid = "MIG-" + std::to_string(index);
  device.gpu_instance = gpu_instance;
  device.compute_instance = compute_instance;
  device.sm_count = 14;
  device.copy_engines = 1;
  device.encoders = device.ofa = device.jpeg = device.decoders = 0;
  device.memory_total = 4864ull << 20;
  device.memory_used = 11ull << 20;
  device.bar1_total = 8191ull << 20;
  device.bar1_used = 0;
  device.sram_uncorrected = 0;
  return device;
}

TEST(SmiMigTest, TheOtherAnswersShowMigDevices) {
  MigNodeSource source;
  const std::string none = Mig(&source, "-i 0").text;
  EXPECT_THAT(none, HasSubstr("|  No MIG devices found                                                               "
                              "    |\n"));
  EXPECT_THAT(none, HasSubstr("00000000:07:00.0 N/A |                   On |\n"));
  EXPECT_THAT(Mig(&source, "-i 1").text, Not(HasSubstr("MIG devices")));
  source.node.gpus[0].mig_devices = {Device(0, 1, 0, "1c.3g.20gb"), Device(1, 1, 1, "1c.3g.20gb"),
                                     Device(2, 11, 0, "1g.5gb")};
  source.node.gpus[0].processes = {{58866, "./BlackScholes", 253ull << 20, {}, {}, 11, 0}};
  EXPECT_EQ(Mig(&source, "-L -i 0").text,
            "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)\n"
            "  MIG 1c.3g.20gb  Device  0: (UUID: MIG-0)\n"
            "  MIG 1c.3g.20gb  Device  1: (UUID: MIG-1)\n"
            "  MIG 1g.5gb      Device  2: (UUID: MIG-2)\n");
  const std::string table = Mig(&source, "").text;
  EXPECT_THAT(
      table,
      HasSubstr("| MIG devices:                                                                            |\n"
                "+------------------+----------------------------------+-----------+-----------------------+\n"
                "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |\n"
                "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |\n"
                "|                  |                                  |        ECC|                       |\n"
                "|==================+==================================+===========+=======================|\n"
                "|  0    1   0   0  |              11MiB /  4864MiB    | 14      0 |  1   0    0    0    0 |\n"
                "|                  |               0MiB /  8191MiB    |           |                       |\n"
                "+------------------+                                  +-----------+-----------------------+\n"
                "|  0    1   1   1  |                                  | 14      0 |  1   0    0    0    0 |\n"
                "|                  |                                  |           |                       |\n"
                "+------------------+----------------------------------+-----------+-----------------------+\n"
                "|  0   11   0   2  |              11MiB /  4864MiB    | 14      0 |  1   0    0    0    0 |\n"
                "|                  |               0MiB /  8191MiB    |           |                       |\n"
                "+------------------+----------------------------------+-----------+-----------------------+\n"));
  EXPECT_THAT(
      table,
      HasSubstr("|    0    11    0            58866      C   ./BlackScholes                         253MiB |\n"));
  const std::string details = Mig(&source, "-q -i 0").text;
  EXPECT_THAT(details, HasSubstr("    MIG Mode\n        Current                           : Enabled\n"
                                 "        Pending                           : Enabled\n"
                                 "    MIG Device\n        Index                             : 0\n"
                                 "        GPU Instance ID                   : 1\n"
                                 "        Compute Instance ID               : 0\n"
                                 "        Device Attributes\n            Shared\n"
                                 "                Multiprocessor count      : 14\n"));
  EXPECT_THAT(details,
              HasSubstr("        Shared FB Memory Usage\n            Total                         : 4864 MiB\n"));
  EXPECT_THAT(details, HasSubstr("        GPU instance ID                   : 11\n"));
  const std::string xml = Mig(&source, "-q -x").text;
  EXPECT_THAT(xml, HasSubstr("\t\t<mig_devices>\n\t\t\t<mig_device>\n\t\t\t\t<index>0</index>\n"));
  EXPECT_THAT(xml, HasSubstr("\t\t</mig_devices>\n"));
  EXPECT_THAT(xml, HasSubstr("\t\t<mig_devices>\n\t\t\tNone\n\t\t</mig_devices>\n")) << "of the other GPU";
}

TEST(SmiMigTest, WhatAllInstancesHoldMayBeKeptFromAUser) {
  MigNodeSource source;
  source.node.gpus[0].memory_denied = true;
  EXPECT_EQ(Mig(&source, "-i 0 --query-gpu=memory.used,memory.total --format=csv,noheader").text,
            "[Insufficient Permissions], [Insufficient Permissions]\n");
  EXPECT_THAT(Mig(&source, "-q -i 0").text,
              HasSubstr("        Used                              : Insufficient Permissions\n"));
  EXPECT_THAT(Mig(&source, "-i 0").text, HasSubstr("|                  N/A   |     N/A "));
}

}  // namespace
}  // namespace mete::emulator::smi
