#include <gtest/gtest.h>

#include <string>

#include "emulator/ptx/ptx.h"
#include "tests/sanitized.h"

namespace mete::emulator::ptx {
namespace {

const char kHead[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

std::string Kernel(const std::string& body) {
  return kHead +
         std::string(
             ".entry k(.param .u64 p)\n{\n.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .pred %p;\n") +
         body + "\n}\n";
}

// "line:column message" of a text that must be refused.
std::string ErrorOf(const std::string& text) {
  Module module;
  Error error;
  EXPECT_FALSE(Parse(text, 90, &module, &error)) << text;
  return std::to_string(error.line) + ":" + std::to_string(error.column) + " " + error.message;
}

TEST(Parser, RefusesNewerVersions) {
  Module module;
  Error error;
  EXPECT_FALSE(Parse(".version 9.1\n.target sm_70\n", 90, &module, &error));
  EXPECT_EQ(error.kind, ErrorKind::kUnsupportedVersion);
  EXPECT_EQ(error.line, 1);
  EXPECT_EQ(error.column, 10);
  EXPECT_TRUE(Parse(".version 9.0\n.target sm_70\n", 90, &module, &error)) << error.message;
  EXPECT_EQ(module.isa_version(), 90u);
  EXPECT_EQ(module.target(), 70u);
  EXPECT_FALSE(Parse("", 90, &module, &error));
  EXPECT_EQ(error.kind, ErrorKind::kInvalidPtx);
}

TEST(Parser, KnowsAKernelsShape) {
  Module module;
  Error error;
  const std::string text = std::string(kHead) + R"(
// a comment
.extern .shared .align 16 .b8 dynamic[];
.const .align 8 .f64 half = 0d3FE0000000000000;
.global .align 4 .u32 table[4] = {1, 2, 3};
.visible .entry first(.param .u8 a, .param .align 8 .b8 b[12], .param .u64 .ptr .global .align 4 c) .maxntid 128, 2, 1 .minnctapersm 2
{ /* another
     comment */
  .reg .b64 %rd<3>; .shared .align 8 .b8 s[100]; .local .b8 l[20];
  .loc 1 3 5
  .pragma "nounroll";
  mov.u64 %rd1, s; mov.u64 %rd2, dynamic;
  ret;
}
.entry second() { ret; }
.section .debug_abbrev { .b8 1 .b8 2 { } }
)";
  ASSERT_TRUE(Parse(text, 90, &module, &error)) << error.line << ":" << error.column << ": " << error.message;
  const Function* f = module.FindEntry("first");
  ASSERT_NE(f, nullptr);
  ASSERT_EQ(f->parameters.size(), 3u);
  EXPECT_EQ(f->parameters[1].offset, 8u);
  EXPECT_EQ(f->parameters[1].size, 12u);
  EXPECT_EQ(f->parameters[2].offset, 24u);
  EXPECT_EQ(f->parameter_bytes, 32u);
  EXPECT_EQ(f->max_threads[0], 128u);
  EXPECT_EQ(f->max_threads[1], 2u);
  EXPECT_EQ(f->static_shared_bytes, 112u);  // 100, rounded up for the dynamic array behind
  EXPECT_EQ(f->local_bytes, 32u);
  EXPECT_EQ(module.FindEntry("second")->static_shared_bytes, 0u);
  EXPECT_EQ(module.FindEntry("third"), nullptr);
  ASSERT_EQ(module.globals().size(), 2u);
  EXPECT_TRUE(module.globals()[0].constant);
  EXPECT_EQ(module.globals()[1].size, 16u);
  EXPECT_EQ(module.globals()[1].initial.size(), 12u);
}

TEST(Parser, ErrorsHaveALineAColumnAndAName) {
  EXPECT_EQ(ErrorOf(Kernel("  foo.u32 %r1, %r2;")), "7:3 unknown opcode 'foo'");
  EXPECT_EQ(ErrorOf(Kernel("  add.u32 %r1, %r9, 1;")), "7:16 unknown register '%r9'");
  EXPECT_EQ(ErrorOf(Kernel("bra AWAY;")), "7:5 unknown label 'AWAY'");
  EXPECT_EQ(ErrorOf(Kernel("add.wild.u32 %r1, %r2, 1;")), "7:1 'add' does not take '.wild'");
  EXPECT_EQ(ErrorOf(Kernel("add.u32 %r1, %r2;")), "7:1 'add' takes 3 operands, found 2");
  EXPECT_EQ(ErrorOf(Kernel("add.u32 %r1, %r2, %rd1;")), "7:19 register '%rd1' is not of the instruction's size");
  EXPECT_EQ(ErrorOf(Kernel("add.b32 %r1, %r2, %r3;")), "7:1 'add' does not work on .b32");
  EXPECT_EQ(ErrorOf(Kernel("ld.global.u32 %r1, %rd1;")), "7:20 an address in brackets is expected here");
  EXPECT_EQ(ErrorOf(Kernel("ld.param.u32 %r1, [p+8];")), "7:19 outside of parameter 'p'");
  EXPECT_EQ(ErrorOf(Kernel("ld.global.u32 %r1, [nowhere];")), "7:20 unknown name 'nowhere'");
  EXPECT_EQ(ErrorOf(Kernel("mov.u32 %r1, 0x12345678901234567;")).substr(0, 4), "7:14");
  EXPECT_EQ(ErrorOf(Kernel("st.const.u32 [%rd1], %r1;")), "7:1 constants cannot be written");
  EXPECT_EQ(ErrorOf(Kernel("L: L: ret;")), "7:4 label 'L' stands twice");
  EXPECT_EQ(ErrorOf(Kernel(".reg .b32 %r<4>;")), "7:11 '%r' is declared twice");
  EXPECT_EQ(ErrorOf(Kernel("@%r1 bra L;")), "7:2 a guard is a predicate");
  EXPECT_EQ(ErrorOf(Kernel("ret; #")).substr(0, 4), "7:6 ");
  EXPECT_EQ(ErrorOf(std::string(kHead) + ".entry k() { ret;"), "4:18 function 'k' has no end");
  EXPECT_EQ(ErrorOf(std::string(kHead) + ".texref t;"), "4:1 unknown directive '.texref'");
  EXPECT_EQ(ErrorOf(".version 7.0\n.target gfx90\n"), "2:9 unknown target 'gfx90'");
  EXPECT_EQ(ErrorOf(".version 7.0\n.target sm_70\n.address_size 32\n"), "3:15 only 64-bit addresses are supported");
}

TEST(Parser, NamesUnresolvedSymbols) {
  EXPECT_EQ(ErrorOf(std::string(kHead) + ".extern .func (.param .b64 r) outside(.param .b32 a);\n.entry k() {\n"
                                         "{ .param .b32 a; .param .b64 r; call.uni (r), outside, (a); }\nret; }\n"),
            "6:47 unresolved extern function 'outside'");
  EXPECT_EQ(ErrorOf(Kernel("call other, ();")), "7:6 unresolved extern function 'other'");
  EXPECT_EQ(
      ErrorOf(std::string(kHead) + ".extern .global .u32 far;\n.entry k() { .reg .b64 %rd; mov.u64 %rd, far; ret; }"),
      "5:42 unresolved extern variable 'far'");
}

TEST(Parser, ForwardDeclarationsMeetTheirDefinition) {
  Module module;
  Error error;
  const std::string text = std::string(kHead) +
                           ".func (.param .b32 r) later(.param .b32 a);\n"
                           ".entry k() { .reg .b32 %r; { .param .b32 a; .param .b32 r; call (r), later, (a); "
                           "ld.param.b32 %r, [r]; } ret; }\n"
                           ".func (.param .b32 r) later(.param .b32 a) { ret; }\n";
  EXPECT_TRUE(Parse(text, 90, &module, &error)) << error.line << ":" << error.column << ": " << error.message;
}

TEST(Parser, KeepsTheModuleWhenATextIsRefused) {
  Module module;
  Error error;
  ASSERT_TRUE(Parse(Kernel("ret;"), 90, &module, &error));
  EXPECT_FALSE(Parse(Kernel("nonsense;"), 90, &module, &error));
  EXPECT_NE(module.FindEntry("k"), nullptr);
}

TEST(Parser, BoundsWhatATextCanAskFor) {
  EXPECT_NE(ErrorOf(Kernel("mov.u32 %r1, " + std::string(5000, '(') + "1;")).find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Kernel(std::string(5000, '{'))).find("nested too deeply"), std::string::npos);
  EXPECT_NE(ErrorOf(Kernel(".local .b8 l[1000000];")).find("512 KiB"), std::string::npos);
  EXPECT_NE(ErrorOf(Kernel(".shared .b8 s[1000000];")).find("shared memory"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(kHead) + ".global .b8 g[99999999999];").find("too large"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(kHead) + ".global .u32 g[1] = {1, 2};").find("more values"), std::string::npos);
}

TEST(Parser, HostileTextIsRefusedSoon) {
  const auto repeat = [](const std::string& what, size_t times) {
    std::string text;
    text.reserve(what.size() * times);
    for (size_t i = 0; i < times; ++i) text += what;
    return text;
  };
  // Registers cost nothing until they are named; then they are bounded.
  Module module;
  Error error;
  EXPECT_TRUE(Parse(Kernel(".reg .b64 %huge<16777216>; mov.u64 %huge16777215, 1; ret;"), 90, &module, &error))
      << error.message;
  EXPECT_NE(ErrorOf(Kernel(".reg .b64 %huge<16777217>;")).find("too many registers"), std::string::npos);
  std::string many = ".reg .b64 %m<100000>;\n";
  for (int i = 0; i < 100'000; ++i) many += "mov.u64 %m" + std::to_string(i) + ", 0;\n";
  EXPECT_NE(ErrorOf(Kernel(many)).find("registers than 16 MiB"), std::string::npos);
  EXPECT_NE(ErrorOf(Kernel("add" + repeat(".sat", 100'000) + ".s32 %r1, %r2, %r3;")).find("too many modifiers"),
            std::string::npos);
  for (const char* threads : {".reqntid 2000", ".reqntid 32, 32, 2", ".maxntid 1024, 1024, 1024"}) {
    EXPECT_NE(ErrorOf(std::string(kHead) + ".entry k() " + threads + " { ret; }").find("1 to 1024"), std::string::npos);
  }
  std::string parameters = ".param .b8 p";
  for (int i = 0; i < 33'000; ++i) parameters += ", .param .b8 p" + std::to_string(i);
  EXPECT_NE(ErrorOf(std::string(kHead) + ".entry k(" + parameters + ") { ret; }").find("32764"), std::string::npos);
  std::string functions = kHead;
  for (int i = 0; i < 17'000; ++i) functions += ".func f" + std::to_string(i) + "();\n";
  EXPECT_NE(ErrorOf(functions).find("more than 16384 functions"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(kHead) + ".global .u32 g[2] = " + repeat("{", 100'000)).find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Kernel("mov.b64 %rd1, " + repeat("{", 100'000))).find("nested too deeply"), std::string::npos);
  // Thousands of loops in each other: parsed in time that grows with the text, whatever becomes of it.
  const int loops = mete::testing::kSanitized ? 1'000 : 20'000;
  std::string nest;
  for (int i = 0; i < loops; ++i) nest += "L" + std::to_string(i) + ": add.u32 %r1, %r1, 1;\n";
  for (int i = 0; i < loops; ++i) nest += "@%p bra L" + std::to_string(i) + ";\n";
  EXPECT_TRUE(Parse(Kernel(nest + "ret;"), 90, &module, &error)) << error.message;
}

TEST(Parser, VersionAndTargetDecideWhatThereIs) {
  const auto with = [](const std::string& version, const std::string& target, const std::string& body) {
    Module module;
    Error error;
    Parse(".version " + version + "\n.target " + target +
              "\n.address_size 64\n.entry k() { .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p;\n" + body +
              "\nret; }",
          90, &module, &error);
    return error.message;
  };
  EXPECT_EQ(with("7.0", "sm_80", "redux.sync.add.u32 %r1, %r2, -1;"), "");
  EXPECT_EQ(with("7.0", "sm_70", "redux.sync.add.u32 %r1, %r2, -1;"), "'redux' needs .target sm_80");
  EXPECT_EQ(with("6.5", "sm_80", "redux.sync.add.u32 %r1, %r2, -1;"), "'redux' needs .version 7.0");
  EXPECT_EQ(with("7.0", "sm_80", "cvt.rn.bf16x2.f32 %r1, 0f3F800000, 0f00000000;"), "");
  EXPECT_EQ(with("7.0", "sm_75", "cvt.rn.bf16x2.f32 %r1, 0f3F800000, 0f00000000;"), "'cvt.bf16x2' needs .target sm_80");
  EXPECT_EQ(with("8.0", "sm_90a", "elect.sync %r1|%p, -1;"), "");
  EXPECT_EQ(with("8.0", "sm_90", "wgmma.fence.sync.aligned;"), "'wgmma' is not supported by the emulated driver");
  EXPECT_EQ(with("8.0", "sm_90", "tex.1d.v4.f32.s32 {%r1, %r1, %r1, %r1}, [t, {%r1}];"),
            "'tex' is not supported by the emulated driver");
}

TEST(Parser, DebugInformationIsRead) {
  Module module;
  Error error;
  const std::string text = std::string(kHead) + R"(
.file 1 "/a b/c.cu", 1700000000, 1234
.common .global .u32 shared_by_modules;
.weak .global .align 8 .b8 g[8];
.func twice(.param .b32 a) { ret; }
.alias other, twice;
.entry k() .reqntid 32, 2 .minnctapersm 2 .maxnreg 64 {
  .loc 1 10 3
  .loc 1 11 5, function_name $L__info_string0, inlined_at 1 10 3
$L__tmp0:
  { .param .b32 a; st.param.b32 [a], 1; call other, (a); }
  .pragma "nounroll";
  ret;
$L__func_end0:
}
.section .debug_str { $L__info_string0: .b8 102,111,0 }
.section .debug_info { .b32 109 .b64 $L__tmp0 .b64 $L__func_end0 .b8 2 .b32 .debug_abbrev }
.section .debug_loc { }
)";
  EXPECT_TRUE(Parse(text, 90, &module, &error)) << error.line << ":" << error.column << ": " << error.message;
  const Function* f = module.FindEntry("k");
  ASSERT_NE(f, nullptr);
  EXPECT_TRUE(f->exact_threads);
  EXPECT_EQ(f->max_threads[1], 2u);
}

}  // namespace
}  // namespace mete::emulator::ptx
