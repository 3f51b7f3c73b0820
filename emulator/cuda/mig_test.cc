// CUDA on a GPU that MIG has cut: what its compute instances look like, whose memory they have, whom they reach.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "emulator/cuda/driver.h"
#include "emulator/cuda/fake_client.h"

namespace mete::emulator::cuda {
namespace {

constexpr uint64_t kMiB = 1 << 20;

MigComputeInstance Compute(uint32_t gpu_instance, uint32_t id, uint32_t profile, uint32_t sms) {
  MigComputeInstance compute = {};
  compute.gpu_instance = gpu_instance;
  compute.id = id;
  compute.profile_id = profile;
  compute.sm_count = sms;
  compute.uuid[0] = 0xa0;
  compute.uuid[1] = static_cast<uint8_t>(gpu_instance);
  compute.uuid[2] = static_cast<uint8_t>(id);
  return compute;
}

MigProfileInfo Profile(uint32_t id, const char* name, const char* part) {
  MigProfileInfo profile = {};
  profile.id = id;
  snprintf(profile.name, sizeof profile.name, "%s", name);
  profile.compute_count = 2;
  snprintf(profile.compute[0].name, sizeof profile.compute[0].name, "%s", part);
  snprintf(profile.compute[1].name, sizeof profile.compute[1].name, "%s", name);
  profile.compute[1].id = 2;
  return profile;
}

// GPU 0 is whole; GPU 1 has a 3g instance in two compute instances and a 1g instance.
FakeClient* TheCutNode() {
  static FakeClient* fake = [] {
    auto* made = new FakeClient;
    MigState state = {};
    state.capable = state.mode = state.pending = 1;
    state.memory_slices = 8;
    state.gpu_instances = 2;
    state.gpu_instance[0] = {1, 1, 9, 4, 4, 0, 512 * kMiB, 0};
    state.gpu_instance[1] = {2, 7, 19, 0, 1, 0, 128 * kMiB, 0};
    state.compute_instances = 3;
    state.compute_instance[0] = Compute(1, 0, 0, 14);
    state.compute_instance[1] = Compute(1, 1, 0, 14);
    state.compute_instance[2] = Compute(7, 0, 2, 14);
    made->Cut(1, state, {Profile(9, "3g.20gb", "1c.3g.20gb"), Profile(19, "1g.5gb", "none")});
    Driver::SetClientFactory([](Client** client, std::string*) {
      *client = TheCutNode();
      return true;
    });
    return made;
  }();
  return fake;
}

class CutNode : public ::testing::Test {
 protected:
  void SetUp() override {
    fake = TheCutNode();
    ASSERT_EQ(::cuInit(0), CUDA_SUCCESS);
  }
  static int Attribute(CUdevice device, CUdevice_attribute attribute) {
    int value = -1;
    EXPECT_EQ(::cuDeviceGetAttribute(&value, attribute, device), CUDA_SUCCESS);
    return value;
  }
  FakeClient* fake = nullptr;
};

TEST_F(CutNode, ADeviceIsAPartOfTheBoard) {
  int count = 0;
  ASSERT_EQ(::cuDeviceGetCount(&count), CUDA_SUCCESS);
  ASSERT_EQ(count, 3);  // the whole GPU, and one compute instance of each GPU instance
  char name[128];
  EXPECT_EQ(::cuDeviceGetName(name, sizeof name, 1), CUDA_SUCCESS);
  EXPECT_STREQ(name, "NVIDIA Fake 1 MIG 1c.3g.20gb");
  EXPECT_EQ(::cuDeviceGetName(name, sizeof name, 2), CUDA_SUCCESS);
  EXPECT_STREQ(name, "NVIDIA Fake 1 MIG 1g.5gb");
  size_t bytes = 0;
  EXPECT_EQ(::cuDeviceTotalMem_v2(&bytes, 1), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 512 * kMiB);
  EXPECT_EQ(Attribute(0, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 108);
  EXPECT_EQ(Attribute(1, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 14);
  EXPECT_EQ(Attribute(0, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 40 << 20);
  EXPECT_EQ(Attribute(1, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 20 << 20);
  EXPECT_EQ(Attribute(2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 5 << 20);
  EXPECT_EQ(Attribute(2, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), 8);
}

TEST_F(CutNode, TheLaterUuidIsTheInstancesTheOlderTheGpus) {
  CUuuid uuid;
  ASSERT_EQ(::cuDeviceGetUuid_v2(&uuid, 2), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<uint8_t>(uuid.bytes[0]), 0xa0);
  EXPECT_EQ(uuid.bytes[1], 7);
  ASSERT_EQ((::cuDeviceGetUuid)(&uuid, 2), CUDA_SUCCESS);
  EXPECT_EQ(memcmp(uuid.bytes, fake->Gpus()[1].uuid, 16), 0);
}

TEST_F(CutNode, MemoryIsTheGpuInstances) {
  CUcontext large = nullptr, small = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&large, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxCreate_v2(&small, 0, 2), CUDA_SUCCESS);
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(::cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 128 * kMiB);
  EXPECT_EQ(free_bytes, 128 * kMiB - fake->Gpus()[1].context_bytes);
  CUdeviceptr in_small = 0, in_large = 0;
  EXPECT_EQ(::cuMemAlloc_v2(&in_small, 100 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(::cuMemAlloc_v2(&in_small, 60 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(large), CUDA_SUCCESS);
  ASSERT_EQ(::cuMemAlloc_v2(&in_large, 400 * kMiB), CUDA_SUCCESS) << "what the neighbour holds is its own";
  EXPECT_EQ(fake->Used(1), 0u) << "nothing is the GPU's itself";
  EXPECT_EQ(::cuCtxDestroy_v2(small), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxDestroy_v2(large), CUDA_SUCCESS);
}

TEST_F(CutNode, NoInstanceReachesAnotherOrAGpu) {
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}, {1, 2}, {2, 1}}) {
    int can = 1;
    ASSERT_EQ(::cuDeviceCanAccessPeer(&can, from, to), CUDA_SUCCESS);
    EXPECT_EQ(can, 0) << from << " to " << to;
  }
  CUcontext one = nullptr, other = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&one, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxCreate_v2(&other, 0, 2), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_EQ(::cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxDestroy_v2(one), CUDA_SUCCESS);
}

TEST_F(CutNode, ADeviceThatIsNoMoreTakesNoContext) {
  MigState before = {}, after = {};
  std::vector<MigProfileInfo> profiles;
  ASSERT_EQ(fake->Mig(1, &before), Result::kOk);
  ASSERT_EQ(fake->MigProfiles(1, &profiles), Result::kOk);
  CUcontext context = nullptr;
  fake->Cut(1, after, profiles);  // the mode is off
  EXPECT_EQ(::cuCtxCreate_v2(&context, 0, 1), CUDA_ERROR_INVALID_DEVICE);
  MigState whole_gpu_cut = {};
  whole_gpu_cut.capable = whole_gpu_cut.mode = 1;
  fake->Cut(0, whole_gpu_cut, {});
  EXPECT_EQ(::cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_INVALID_DEVICE);
  fake->Cut(0, {}, {});
  fake->Cut(1, before, profiles);
  ASSERT_EQ(::cuCtxCreate_v2(&context, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(::cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

}  // namespace
}  // namespace mete::emulator::cuda
