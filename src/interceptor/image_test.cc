#include "interceptor/image.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <string.h>

#include <string>
#include <vector>

namespace mete::interceptor {
namespace {

constexpr uint64_t kMiB = 1 << 20;
const std::string kHead = ".version 8.0\n.target sm_80\n.address_size 64\n";

// Of what is placed in whole granules; smaller variables would hide in the rounding.
uint64_t Large(const std::string& text) {
  const ImageSize size = SizeOfPtx(text.data(), text.size());
  EXPECT_TRUE(size.known) << text;
  return size.extent.large / kMiB;
}

TEST(Image, CountsVariables) {
  EXPECT_EQ(Large(kHead), 0u);
  EXPECT_EQ(Large(kHead + ".global .b8 a[4194304];"), 4u);
  EXPECT_EQ(Large(kHead + ".visible .global .align 16 .f32 a[1048576];"), 4u);
  EXPECT_EQ(Large(kHead + ".weak .global .align 8 .v4 .f32 a[1024][1024];"), 16u);
  EXPECT_EQ(Large(kHead + ".global .attribute(.managed) .u64 a[0x80000];"), 4u);
  EXPECT_EQ(Large(kHead + ".global .f16x2 a[01000000];"), 2u);  // octal: 262144 × 4 is 1 MiB, a granule
  EXPECT_EQ(Large(kHead + ".global .b128 a[131072U];"), 2u);
  EXPECT_EQ(Large(kHead + ".global .u32 a[524288], b[1048576], c;"), 6u);
  EXPECT_EQ(Large(kHead + ".common .global .bf16 a[1048576]; .const .b8 t[65536];"), 2u);
}

TEST(Image, TakesNothingElseForAVariable) {
  EXPECT_EQ(Large(kHead + ".extern .global .b8 a[4194304];"), 0u);
  EXPECT_EQ(Large(kHead + "// .global .b8 a[4194304];\n"), 0u);
  EXPECT_EQ(Large(kHead + "/* .global .b8 a[4194304]; */"), 0u);
  EXPECT_EQ(
      Large(kHead + ".visible .entry k(.param .u64 .ptr .global .align 4 p) {\n"
                    " .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1];\n ret;\n}"),
      0u);
  EXPECT_EQ(Large(kHead + ".file 1 \"x; .global .b8 a[4194304];\""), 0u);
  EXPECT_EQ(Large(kHead + ".shared .b8 a[4194304]; .local .b8 b[4194304];"), 0u);
}

TEST(Image, CountsInitialisersWhereTheBoundIsOpen) {
  std::string values = "1";
  for (int i = 1; i < 1 << 20; ++i) values += ",2";
  EXPECT_EQ(Large(kHead + ".global .u32 a[] = {" + values + "};"), 4u);
  EXPECT_EQ(Large(kHead + ".global .u32 a[2097152] = {1, 2, 3};"), 8u);
  const ImageSize small = SizeOfPtx(".global .u32 x = 5; .global .u64 p = generic(x);", 48);
  EXPECT_TRUE(small.known);
  EXPECT_GE(small.extent.small, 2 * 512u);
}

TEST(Image, AbsurdBoundsAreTooMuchAndNotTooLittle) {
  const std::string most = kHead + ".global .b64 a[9223372036854775807][4];";
  EXPECT_EQ(SizeOfPtx(most.data(), most.size()).extent.Most(), UINT64_MAX);
  const std::string digits = kHead + ".global .b8 a[99999999999999999999999999];";
  EXPECT_EQ(SizeOfPtx(digits.data(), digits.size()).extent.Most(), UINT64_MAX);
}

TEST(Image, WhatCannotBeReadIsNotKnown) {
  for (const char* text : {".global", ".global .b8 a[", ".global .b8 a[n];", ".global a;", ".global .b8 ;"}) {
    EXPECT_FALSE(SizeOfPtx(text, strlen(text)).known) << text;
  }
  EXPECT_FALSE(SizeOfImage(nullptr).known);
  const uint32_t fat_binary[4] = {0xBA55ED50, 0, 0, 0};
  EXPECT_FALSE(SizeOfImage(fat_binary).known);
  EXPECT_FALSE(SizeOfFile("/does/not/exist").known);
  EXPECT_FALSE(SizeOfFile(nullptr).known);
  EXPECT_TRUE(SizeOfImage("").known);
}

std::vector<char> Elf(const std::vector<Elf64_Shdr>& sections) {
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<uint16_t>(sections.size());
  std::vector<char> file(sizeof header + sections.size() * sizeof(Elf64_Shdr));
  memcpy(file.data(), &header, sizeof header);
  if (!sections.empty()) memcpy(file.data() + sizeof header, sections.data(), sections.size() * sizeof(Elf64_Shdr));
  return file;
}

TEST(Image, ElfSectionsThatAreLoadedCount) {
  Elf64_Shdr code = {}, variables = {}, symbols = {};
  code.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  code.sh_size = 3 * kMiB;
  variables.sh_type = SHT_NOBITS;
  variables.sh_flags = SHF_ALLOC | SHF_WRITE;
  variables.sh_size = 1000 * kMiB;
  symbols.sh_size = 9 * kMiB;
  const std::vector<char> file = Elf({{}, code, variables, symbols});
  const ImageSize size = SizeOfImage(file.data());
  EXPECT_TRUE(size.known);
  EXPECT_EQ(size.extent.large, 1004 * kMiB);
  for (size_t cut = 0; cut < file.size(); cut += 7) EXPECT_FALSE(SizeOfElf(file.data(), cut).known) << cut;
  EXPECT_FALSE(SizeOfElf(Elf({}).data(), sizeof(Elf64_Ehdr)).known);
}

}  // namespace
}  // namespace mete::interceptor
