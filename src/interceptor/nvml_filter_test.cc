#include "interceptor/nvml_filter.h"

#include <gtest/gtest.h>

#include <vector>

namespace mete::interceptor {
namespace {

using nvml::abi::NVML_ERROR_INSUFFICIENT_SIZE;
using nvml::abi::NVML_ERROR_INVALID_ARGUMENT;
using nvml::abi::NVML_ERROR_NOT_SUPPORTED;
using nvml::abi::NVML_SUCCESS;
using nvml::abi::nvmlReturn_t;

// The driver's list: 0, 1, 2, … of which the even ones are the tenant's.
struct Driver {
  unsigned known;
  nvmlReturn_t answer = NVML_SUCCESS;
  nvmlReturn_t operator()(unsigned* count, unsigned* items) const {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (answer != NVML_SUCCESS) return answer;
    const unsigned room = *count;
    *count = known;
    if (room < known) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < known; ++i) items[i] = i;
    return NVML_SUCCESS;
  }
};
bool Even(unsigned item) { return item % 2 == 0; }

TEST(NvmlFilterTest, KeepsTheTenantsOwn) {
  std::vector<unsigned> items(200, 99);
  unsigned count = 200;
  ASSERT_EQ(Filter(&count, items.data(), Driver{300}, Even), NVML_SUCCESS);
  EXPECT_EQ(count, 150u);
  EXPECT_EQ(items[149], 298u);
  EXPECT_EQ(items[150], 99u) << "written beyond the answer";
}

TEST(NvmlFilterTest, TooLittleRoomSaysHowMuchOfTheOwnThereIs) {
  unsigned count = 0;
  EXPECT_EQ(Filter<unsigned>(&count, nullptr, Driver{9}, Even), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(count, 5u) << "not the driver's nine";
  count = 4;
  unsigned items[4] = {};
  EXPECT_EQ(Filter(&count, items, Driver{9}, Even), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(Filter<unsigned>(nullptr, nullptr, Driver{9}, Even), NVML_ERROR_INVALID_ARGUMENT);
  count = 0;
  EXPECT_EQ(Filter<unsigned>(&count, nullptr, Driver{0}, Even), NVML_SUCCESS);
  EXPECT_EQ(Filter<unsigned>(&count, nullptr, Driver{9}, [](unsigned) { return false; }), NVML_SUCCESS);
  EXPECT_EQ(count, 0u) << "nobody else's is counted either";
}

TEST(NvmlFilterTest, TheDriversErrorsPass) {
  unsigned count = 7, items[7] = {};
  EXPECT_EQ(Filter(&count, items, Driver{1, NVML_ERROR_NOT_SUPPORTED}, Even), NVML_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace mete::interceptor
