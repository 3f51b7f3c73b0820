#include <gtest/gtest.h>

#include <string>

#include "emulator/ptx/ptx.h"

namespace mete::emulator::ptx {
namespace {

TEST(Parser, RefusesNewerVersions) {
  Module module;
  Error error;
  EXPECT_FALSE(Parse(".version 9.1\n.target sm_70\n", 90, &module, &error));
  EXPECT_EQ(error.kind, ErrorKind::kUnsupportedVersion);
  EXPECT_TRUE(Parse(".version 9.0\n.target sm_70\n", 90, &module, &error)) << error.message;
  EXPECT_EQ(module.isa_version(), 90u);
}

}  // namespace
}  // namespace mete::emulator::ptx
