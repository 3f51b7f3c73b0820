// What files need, read from files as the linker made them and from the same files cut short and scribbled on.
#include "interceptor/elf_needs.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "interceptor/driver_need.h"
#include "interceptor/loaded_object.h"

namespace mete::interceptor {
namespace {

using ::testing::Contains;
using ::testing::StrEq;

std::vector<char> Bytes(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string MathLibrary() {
  void* handle = dlopen("libm.so.6", RTLD_NOW);
  link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return "";
  return map->l_name;
}

TEST(ElfNeeds, AreReadFromALibrary) {
  const std::vector<char> file = Bytes(MathLibrary().c_str());
  ElfNeeds needs;
  ASSERT_TRUE(ReadElfNeeds(file.data(), file.size(), &needs));
  EXPECT_STREQ(needs.soname, "libm.so.6");
  EXPECT_THAT(std::vector<std::string>(needs.needed, needs.needed + needs.count), Contains(StrEq("libc.so.6")));
}

TEST(ElfNeeds, OfAFileThatIsCutShortAreNotRead) {
  const std::vector<char> file = Bytes("/proc/self/exe");
  ElfNeeds needs;
  ASSERT_TRUE(ReadElfNeeds(file.data(), file.size(), &needs));
  ASSERT_GT(needs.count, 0u);
  for (size_t size : {size_t{0}, size_t{3}, size_t{63}, size_t{64}, size_t{100}, size_t{700}}) {
    const std::vector<char> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(ReadElfNeeds(part.data(), part.size(), &needs)) << size;
  }
}

TEST(ElfNeeds, OffsetsBeyondTheFileAreNotFollowed) {
  std::vector<char> file = Bytes("/proc/self/exe");
  ElfNeeds needs;
  const uint64_t wild = ~uint64_t{0} - 40;
  memcpy(file.data() + offsetof(ElfW(Ehdr), e_phoff), &wild, sizeof wild);
  EXPECT_FALSE(ReadElfNeeds(file.data(), file.size(), &needs));
}

TEST(DriverNeed, IsFoundByNameAndThroughWhatFilesNeed) {
  const char* none = nullptr;
  EXPECT_EQ(NeedOf("libcuda.so.1", &none, 0), kNeedsCuda);
  EXPECT_EQ(NeedOf("/some/where/libnvidia-ml.so.1", &none, 0), kNeedsMl);
  EXPECT_EQ(NeedOf(MathLibrary().c_str(), &none, 0), 0u);
  EXPECT_EQ(NeedOf("libm.so.6", &none, 0), 0u) << "it is loaded";
#if defined(__x86_64__)
  EXPECT_EQ(NeedOf(METE_CORPUS "/linked", &none, 0), kNeedsCuda) << "linked to libcuda.so.1";
  EXPECT_EQ(NeedOf(METE_CORPUS "/cut", &none, 0), kNeedsUnknown);
#endif
  EXPECT_EQ(NeedOf("libno-such-library.so", &none, 0), kNeedsUnknown);
}

TEST(LoadedObject, FindsWhatTheDynamicLinkerFinds) {
  link_map* map = nullptr;
  void* handle = dlopen("libm.so.6", RTLD_NOW);
  ASSERT_TRUE(handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0);
  const LoadedObject object(map->l_addr, map->l_ld);
  EXPECT_STREQ(object.Soname(), "libm.so.6");
  EXPECT_EQ(object.Find("cbrt"), dlsym(handle, "cbrt"));  // no other version, and no resolver
  EXPECT_EQ(object.Find("no_such_name"), nullptr);
  EXPECT_EQ(object.Find("malloc"), nullptr) << "wanted by it, not defined in it";
}

}  // namespace
}  // namespace mete::interceptor
