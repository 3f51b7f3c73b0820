// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER over whole GPUs and compute instances.
#include "emulator/cuda/visible.h"

#include <gtest/gtest.h>

#include <string>

#include "emulator/cuda/fake_client.h"

namespace mete::emulator::cuda {
namespace {

using Names = std::vector<std::string>;

// "1": the whole GPU; "0/1/2": of GPU 0 the compute instance 2 of GPU instance 1.
Names Seen(const std::vector<GpuInfo>& gpus, const std::vector<MigSeat>& seats, const char* visible,
           const char* order = "PCI_BUS_ID", std::vector<bool> mig_mode = {}) {
  mig_mode.resize(gpus.size());
  for (const MigSeat& seat : seats) mig_mode[seat.gpu] = true;
  Names names;
  for (const VisibleDevice& device : VisibleDevices(gpus, mig_mode, seats, visible, order)) {
    std::string name = std::to_string(device.gpu);
    if (device.mig)
      name += "/" + std::to_string(device.mig->gpu_instance) + "/" + std::to_string(device.mig->compute_instance);
    names.push_back(name);
  }
  return names;
}

Names Whole(const char* visible) { return Seen(FakeClient(3).Gpus(), {}, visible); }

TEST(Visible, ListsAreReadAsTheDriverDoes) {
  EXPECT_EQ(Whole(nullptr), (Names{"0", "1", "2"}));
  EXPECT_EQ(Whole(""), Names{});
  EXPECT_EQ(Whole("2,0"), (Names{"2", "0"}));
  EXPECT_EQ(Whole(" 2 , 0"), (Names{"2", "0"}));
  EXPECT_EQ(Whole("1,7,0"), (Names{"1"}));
  EXPECT_EQ(Whole("-1"), Names{});
  EXPECT_EQ(Whole("0,0"), Names{});
  EXPECT_EQ(Whole("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"), (Names{"1"}));
  EXPECT_EQ(Whole("GPU-2021,GPU-0001"), (Names{"2", "0"}));
  EXPECT_EQ(Whole("gpu-2021"), (Names{"2"}));
  EXPECT_EQ(Whole("GPU-"), Names{});
  EXPECT_EQ(Whole("GPU-ff"), Names{});
  EXPECT_EQ(Whole("MIG-10"), Names{});
  EXPECT_EQ(Whole("0x"), Names{});
  EXPECT_EQ(Whole(",0"), Names{});
}

TEST(Visible, OrderIsByBusOnlyWhenAsked) {
  std::vector<GpuInfo> gpus = FakeClient(3).Gpus();
  gpus[2].sm_count *= 2;
  EXPECT_EQ(Seen(gpus, {}, nullptr, nullptr), (Names{"2", "0", "1"}));
  EXPECT_EQ(Seen(gpus, {}, "0", "FASTEST_FIRST"), (Names{"2"}));
  EXPECT_EQ(Seen(gpus, {}, "0", "PCI_BUS_ID"), (Names{"0"}));
}

MigSeat Seat(uint32_t gpu, uint32_t gpu_instance, uint32_t compute_instance) {
  MigSeat seat = {gpu, gpu_instance, compute_instance, {}};
  seat.uuid[0] = static_cast<uint8_t>(0xa0 + gpu);
  seat.uuid[1] = static_cast<uint8_t>(gpu_instance);
  seat.uuid[2] = static_cast<uint8_t>(compute_instance);
  return seat;
}

class VisibleMig : public ::testing::Test {
 protected:
  // GPU 1 is cut: two compute instances in one GPU instance, one in another.
  Names See(const char* visible) const { return Seen(FakeClient(3).Gpus(), seats_, visible); }
  std::vector<MigSeat> seats_ = {Seat(1, 1, 0), Seat(1, 1, 1), Seat(1, 11, 0)};
};

TEST_F(VisibleMig, OneComputeInstanceOfEachGpuInstanceStandsForTheGpu) {
  EXPECT_EQ(See(nullptr), (Names{"0", "1/1/0", "1/11/0", "2"}));
  EXPECT_EQ(See("1"), (Names{"1/1/0", "1/11/0"}));
  EXPECT_EQ(See("GPU-10"), (Names{"1/1/0", "1/11/0"}));
  EXPECT_EQ(See("2,1"), (Names{"2", "1/1/0", "1/11/0"}));
}

TEST_F(VisibleMig, ComputeInstancesAreNamedByUuidOrByPlace) {
  EXPECT_EQ(See("MIG-a10b0000-0000-0000-0000-000000000000"), (Names{"1/11/0"}));
  EXPECT_EQ(See("mig-a10101"), (Names{"1/1/1"}));
  EXPECT_EQ(See("MIG-a10b,0"), (Names{"1/11/0", "0"}));
  EXPECT_EQ(See("MIG-GPU-10111213-1415-1617-1819-1a1b1c1d1e1f/1/1"), (Names{"1/1/1"}));
  EXPECT_EQ(See("MIG-a1"), Names{}) << "more than one begins so";
  EXPECT_EQ(See("0,MIG-ff,2"), (Names{"0"}));
  for (const char* nobody : {"MIG-", "MIG-GPU-", "MIG-GPU-10/1", "MIG-GPU-10/1/", "MIG-GPU-10//0", "MIG-GPU-10/1/2",
                             "MIG-GPU-10/1/0/0", "MIG-GPU-00/1/0", "MIG-GPU-10/1/x"}) {
    EXPECT_EQ(See(nobody), Names{}) << nobody;
  }
}

TEST_F(VisibleMig, TheFirstNamedOfAGpuInstanceIsTaken) {
  EXPECT_EQ(See("MIG-a10101,MIG-a10100,MIG-a10b"), (Names{"1/1/1", "1/11/0"}));
  EXPECT_EQ(See("MIG-a10101,1"), (Names{"1/1/1", "1/11/0"}));
  EXPECT_EQ(See("MIG-a10b,MIG-a10b"), Names{}) << "named twice";
}

TEST_F(VisibleMig, AGpuThatIsNotCutYetIsNoDevice) {
  EXPECT_EQ(Seen(FakeClient(2).Gpus(), {}, nullptr, nullptr, {true, false}), (Names{"1"}));
  EXPECT_EQ(Seen(FakeClient(2).Gpus(), {}, "0,1", nullptr, {true, false}), (Names{"1"}));
  EXPECT_EQ(Seen(FakeClient(1).Gpus(), {}, nullptr, nullptr, {true}), Names{});
}

TEST_F(VisibleMig, NotMoreThanSixtyFour) {
  std::vector<MigSeat> many;
  for (uint32_t gpu = 0; gpu < 10; ++gpu) {
    for (uint32_t instance = 7; instance < 14; ++instance) many.push_back(Seat(gpu, instance, 0));
  }
  EXPECT_EQ(Seen(FakeClient(10).Gpus(), many, nullptr).size(), kMostMigDevices);
}

}  // namespace
}  // namespace mete::emulator::cuda
