#include "nvml/library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "nvml/fake.h"

namespace mete::nvml {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A driver root that holds the scripted driver in one of its library folders.
class LibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("METE_TEST_DRIVER");
    char folder[] = "/tmp/mete-nvml-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    root_ = folder;
  }
  void TearDown() override {
    unsetenv("METE_TEST_DRIVER");
    fs::remove_all(root_);
  }
  fs::path Install(const char* folder, const char* driver = METE_SCRIPTED_DRIVER) {
    fs::create_directories(root_ / folder);
    fs::path file = root_ / folder / "libnvidia-ml.so.1";
    fs::copy_file(driver, file);
    return file;
  }
  fs::path root_;
};

TEST_F(LibraryTest, ReadsWhatTheDriverSays) {
  fs::path file = Install("usr/lib/x86_64-linux-gnu");
  auto library = Library::Open(root_.string() + "/");
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->path(), file);
  EXPECT_EQ((*library)->driver_version(), "550.54.15");
  EXPECT_EQ((*library)->nvml_version(), "12.550.54.15");
  EXPECT_EQ((*library)->cuda_version(), 12040u);
  EXPECT_FALSE((*library)->emulated());
  auto devices = (*library)->Devices();
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 3u);
  const Device& h100 = *(*devices)[0];
  EXPECT_EQ(h100.name(), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(h100.uuid(), "GPU-0");
  EXPECT_EQ(*h100.MinorNumber(), 4u);
  EXPECT_EQ(*h100.PciBusId(), "00000000:00:00.0");
  EXPECT_EQ(*h100.Capability(), (ComputeCapability{9, 0}));
  EXPECT_EQ(h100.Memory()->reserved.count, 100u);
  EXPECT_EQ(h100.Memory()->used.count, 300u);
  EXPECT_EQ(h100.Mig()->current, MigMode::kDisabled);
  EXPECT_EQ(h100.Mig()->pending, MigMode::kEnabled);
  EXPECT_EQ(*h100.Mode(), ComputeMode::kExclusiveProcess);
  EXPECT_EQ(h100.Use()->gpu, 42u);
  auto processes = h100.Processes();
  ASSERT_TRUE(processes.ok());
  ASSERT_EQ(processes->size(), 201u);
  EXPECT_EQ((*processes)[0].used.count, 0u) << "NVML could not tell";
  EXPECT_EQ((*processes)[1].name, "/bin/one");
  EXPECT_EQ((*processes)[199].pid, 1199u);
  // Reported fault 58: what draws takes memory as well as what computes.
  EXPECT_EQ((*processes)[2].used.count, 5000u) << "in both lists: once, with all of it";
  EXPECT_EQ((*processes)[200].pid, 77u);
  EXPECT_EQ((*processes)[200].used.count, 4000u);
  auto use = h100.ProcessUse(0);
  ASSERT_TRUE(use.ok());
  ASSERT_EQ(use->size(), 1u);
  EXPECT_EQ((*use)[0].sm, 30u);
}

TEST_F(LibraryTest, WhatAGpuDoesNotSupportIsNoFailure) {
  Install("usr/lib64");
  auto library = Library::Open(root_.string());
  ASSERT_TRUE(library.ok()) << library.status();
  auto devices = *(*library)->Devices();
  EXPECT_EQ(devices[1]->Mig()->current, MigMode::kNotCapable);
  EXPECT_EQ(devices[1]->Memory()->used.count, 400u) << "the older call";
  EXPECT_TRUE(Unsupported(devices[1]->Use().status()));
  EXPECT_THAT(Message(devices[1]->Use().status()), HasSubstr("GPU 1 (GPU-1)"));
  EXPECT_TRUE(devices[1]->ProcessUse(0)->empty());
  EXPECT_EQ(ExitCodeFor(devices[2]->Mode().status()), ExitCode::kFault) << "a mode nobody knows";
  setenv("METE_TEST_DRIVER", "lost", 1);
  EXPECT_EQ(ExitCodeFor(devices[0]->Mode().status()), ExitCode::kLacks);
}

TEST_F(LibraryTest, FindsADevice) {
  Install("lib64");
  auto library = *Library::Open(root_.string());
  EXPECT_EQ((*library->FindDevice("1"))->uuid(), "GPU-1");
  EXPECT_EQ((*library->FindDevice("GPU-2"))->index(), 2u);
  EXPECT_EQ((*library->FindDevice("00000000:02:00.0"))->index(), 2u);
  auto none = library->FindDevice("7");
  EXPECT_EQ(ExitCodeFor(none.status()), ExitCode::kUsage);
  EXPECT_THAT(Message(none.status()), HasSubstr("0 (NVIDIA H100 80GB HBM3, GPU-0), 1 (Tesla T4"));
  setenv("METE_TEST_DRIVER", "hidden", 1);
  EXPECT_EQ(library->Devices()->size(), 2u) << "a GPU that may not be opened is left out";
}

TEST_F(LibraryTest, SaysWhatIsMissing) {
  auto nothing = Library::Open(root_.string());
  EXPECT_EQ(ExitCodeFor(nothing.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(nothing.status()), testing::AllOf(HasSubstr(root_.string()), HasSubstr("mete emulate up")));

  fs::path file = Install("lib");
  for (const char* mood : {"not-loaded", "mismatch"}) {
    setenv("METE_TEST_DRIVER", mood, 1);
    EXPECT_EQ(ExitCodeFor(Library::Open(root_.string()).status()), ExitCode::kLacks) << mood;
  }
  unsetenv("METE_TEST_DRIVER");
  fs::remove(file);
  std::ofstream(file) << "no library";
  auto rubbish = Library::Open(root_.string());
  EXPECT_EQ(ExitCodeFor(rubbish.status()), ExitCode::kLacks);
  EXPECT_THAT(Message(rubbish.status()), HasSubstr(file.string()));
  fs::remove(file);
  fs::copy_file(METE_OTHER_LIBRARY, file);
  EXPECT_THAT(Message(Library::Open(root_.string()).status()), HasSubstr("nvmlInit_v2"));
}

TEST_F(LibraryTest, EndsNvmlAndSaysThatItIsEmulated) {
  fs::path file = Install("usr/lib", METE_SCRIPTED_EMULATED_DRIVER);
  auto library = *Library::Open(root_.string());
  EXPECT_TRUE(library->emulated());
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  auto initialised = reinterpret_cast<int (*)()>(dlsym(handle, "scripted_initialised"));
  EXPECT_EQ(initialised(), 1);
  auto devices = *library->Devices();
  library.reset();
  EXPECT_EQ(initialised(), 1) << "a device keeps NVML";
  devices.clear();
  EXPECT_EQ(initialised(), 0);
  dlclose(handle);
}

TEST(FakeTest, AnswersLikeALibrary) {
  FakeLibrary library;
  library.Add();
  library.Add().failure = Lacks("GPU 1 fell off the bus");
  EXPECT_EQ((*library.FindDevice("1"))->index(), 1u);
  EXPECT_EQ((*library.FindDevice("GPU-00000000-0000-0000-0000-000000000001"))->index(), 1u);
  EXPECT_TRUE(library.devices[0]->Memory().ok());
  EXPECT_FALSE(library.devices[1]->Memory().ok());
}

}  // namespace
}  // namespace mete::nvml
