// What the in-process tests share: the library over a FakeClient, and a context per test. For tests only.
#ifndef METE_EMULATOR_CUDA_TEST_DRIVER_H_
#define METE_EMULATOR_CUDA_TEST_DRIVER_H_

#include <gtest/gtest.h>

#include "emulator/cuda/driver.h"
#include "emulator/cuda/fake_client.h"

namespace mete::emulator::cuda {

inline constexpr size_t kMiB = 1 << 20;

inline FakeClient* TheFake() {
  static FakeClient* fake = [] {
    auto* made = new FakeClient;
    Driver::SetClientFactory([](Client** client, std::string*) {
      *client = TheFake();
      return true;
    });
    return made;
  }();
  return fake;
}

class DriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake = TheFake();
    ASSERT_EQ(::cuInit(0), CUDA_SUCCESS);
    left_by_others_ = fake->Used(0);
    ASSERT_EQ(::cuCtxCreate_v4(&context, nullptr, 0, 0), CUDA_SUCCESS);
    used_at_start = fake->Used(0);
    fake->TakePosted();
  }
  void TearDown() override {
    fake->Release();
    ::cuCtxDestroy_v2(context);
    CUcontext left = nullptr;
    while (::cuCtxPopCurrent_v2(&left) == CUDA_SUCCESS) {
    }
    EXPECT_EQ(fake->Used(0), left_by_others_);
    EXPECT_EQ(fake->overdrawn, 0);
  }
  FakeClient* fake = nullptr;
  CUcontext context = nullptr;
  uint64_t used_at_start = 0;

 private:
  uint64_t left_by_others_ = 0;  // mappable memory that a test of every call did not release outlives its context
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_TEST_DRIVER_H_
