// mete-load from outside, as a program, on a scripted driver; and its parts that need none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "lab/load/command_line.h"
#include "lab/load/latencies.h"
#include "lab/load/processes.h"

namespace mete::lab {
namespace {

using testing::HasSubstr;

struct Done {
  int exit_status;
  std::string said;   // stdout
  std::string wrote;  // stderr
  Json json() const {
    auto parsed = ParseJson(said, "mete-load");
    EXPECT_TRUE(parsed.ok()) << said << wrote;
    return parsed.ok() ? *parsed : Json::object();
  }
};

std::string ReadAll(FILE* file) {
  std::string text;
  rewind(file);
  for (int c = getc(file); c != EOF; c = getc(file)) text += static_cast<char>(c);
  fclose(file);
  return text;
}

// Runs `[settings] mete-load words` in a shell with the scripted driver in front.
Done Load(const std::string& words, const std::string& settings = "LD_LIBRARY_PATH=" METE_SCRIPTED_CUDA) {
  FILE* out = tmpfile();
  FILE* err = tmpfile();
  pid_t pid = fork();
  if (pid == 0) {
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    std::string line = settings + " exec " METE_LOAD " " + words;
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(126);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadAll(out), ReadAll(err)};
}
const std::string kDriver = "LD_LIBRARY_PATH=" METE_SCRIPTED_CUDA " ";

TEST(LoadTest, CountsWorkByTheGpusClock) {
  Done done = Load("compute --kernel-ms 1 --seconds 2 --json");
  ASSERT_EQ(done.exit_status, 0) << done.wrote;
  Json result = done.json();
  EXPECT_EQ(result["iterations"], 2500);  // 400 ns each
  EXPECT_NEAR(result["kernel_ms"].get<double>(), 1.0, 1e-4);
  EXPECT_EQ(result["grid"], 80);
  EXPECT_NEAR(result["kernels"].get<double>(), 2000 / 1.003, 2);  // each launch costs 3 µs besides
  EXPECT_NEAR(result["gpu_ms"].get<double>(), 2000 / 1.003, 2);
  EXPECT_NEAR(result["seconds"].get<double>(), 2, 0.002);
}

TEST(LoadTest, CalibratesBetweenANeighboursTurns) {
  Done done = Load("calibrate --kernel-ms 2 --json", kDriver + "METE_TEST_NEIGHBOUR=1");
  ASSERT_EQ(done.exit_status, 0) << done.wrote;
  EXPECT_EQ(done.json()["iterations"], 5000);
  // Under the neighbour less work is done in the same time.
  Json alone = Load("compute --iterations 2500 --seconds 2 --json").json();
  Json beside = Load("compute --iterations 2500 --seconds 2 --json", kDriver + "METE_TEST_NEIGHBOUR=1").json();
  EXPECT_NEAR(beside["gpu_ms"].get<double>() / alone["gpu_ms"].get<double>(), 0.8, 0.01);
}

TEST(LoadTest, SumsItsProcesses) {
  Json one = Load("compute --seconds 1 --json").json();
  Done done = Load("compute --seconds 1 --processes 3 --progress --json");
  ASSERT_EQ(done.exit_status, 0) << done.wrote;
  Json three = done.json();
  EXPECT_EQ(three["processes"], 3);
  EXPECT_EQ(three["kernels"].get<uint64_t>(), 3 * one["kernels"].get<uint64_t>());
  EXPECT_NEAR(three["seconds"].get<double>(), 1, 0.002);
  Done hogs = Load("hog --processes 2 --json");
  EXPECT_EQ(hogs.json()["bytes"], 2ull << 30);
  Done wrong = Load("hog --api mipmap --processes 2");
  EXPECT_EQ(wrong.exit_status, 4) << wrong.wrote;
}

TEST(LoadTest, StreamsCopyWhatTheySay) {
  Done done = Load("memory-stream --memory 64MiB --kernel-ms 0.5 --seconds 1 --streams 2 --json",
                   kDriver + "METE_TEST_NS_PER_ITERATION=100000");
  ASSERT_EQ(done.exit_status, 0) << done.wrote;
  Json result = done.json();
  EXPECT_EQ(result["iterations"], 5);
  EXPECT_EQ(result["bytes"].get<double>(), result["kernels"].get<double>() * 5 * (64 << 20));
}

TEST(LoadTest, HogsToTheLastGranule) {
  for (const char* api : {"alloc", "pitch", "async", "pool", "vmm", "array", "array3d"}) {
    Done done = Load(std::string("hog --json --chunk 300MiB --api ") + api);
    ASSERT_EQ(done.exit_status, 0) << api << done.wrote;
    Json result = done.json();
    EXPECT_LE(result["bytes"].get<uint64_t>(), 1u << 30) << api;
    EXPECT_GT(result["bytes"].get<uint64_t>() + (2 << 20), 1u << 30) << api;
    EXPECT_EQ(result["error"], "CUDA_ERROR_OUT_OF_MEMORY") << api;
  }
  // A driver that never refuses is asked for one granule more than the card has, no further.
  Json managed = Load("hog --json --api managed").json();
  EXPECT_EQ(managed["bytes"], (1u << 30) + (2u << 20));
  EXPECT_TRUE(managed["error"].is_null());
  Done missing = Load("hog --api mipmap");
  EXPECT_EQ(missing.exit_status, 4);
  EXPECT_THAT(missing.wrote, HasSubstr("--api mipmap"));
}

TEST(LoadTest, FindsEntryPointsByBothRoutes) {
  EXPECT_EQ(Load("hog --lookup dlsym").exit_status, 0);
  Done done = Load("hog --lookup proc-address --json");
  ASSERT_EQ(done.exit_status, 0) << done.wrote;
  EXPECT_EQ(done.json()["lookup"], "proc-address");
  // This route of the scripted driver has no pitch, so it was really taken.
  EXPECT_EQ(Load("hog --lookup proc-address --api pitch").exit_status, 4);
}

TEST(LoadTest, FaultsAreResults) {
  for (auto& [kind, code] : {std::pair{"illegal-address", 700}, {"misaligned", 716}, {"trap", 719}}) {
    Done done = Load(std::string("fault --json --kind ") + kind);
    ASSERT_EQ(done.exit_status, 0) << done.wrote;
    EXPECT_EQ(done.json()["error_code"], code);
    EXPECT_EQ(done.json()["sticky"], true);
  }
}

TEST(LoadTest, InferKeepsToItsPlan) {
  Done done = Load("infer --rate 2000 --seconds 0.5 --seed 3 --kernel-ms 0.1 --json");
  ASSERT_EQ(done.exit_status, 0) << done.wrote;
  Json result = done.json();
  // The plan is the seed's, whatever the machine does meanwhile.
  EXPECT_EQ(result["requests"],
            Load("infer --rate 2000 --seconds 0.5 --seed 3 --kernel-ms 0.1 --json").json()["requests"]);
  EXPECT_NEAR(result["requests"].get<double>(), 1000, 160);  // five standard deviations
  EXPECT_EQ(result["response_ms"]["samples"], result["requests"]);
  EXPECT_TRUE(result["response_ms"]["p95"].is_number());
  EXPECT_GE(result["response_ms"]["max"].get<double>(), result["service_ms"]["p50"].get<double>());
  Json many = Load("infer --rate 400 --processes 2 --seconds 0.5 --kernel-ms 0.1 --json").json();
  EXPECT_EQ(many["response_ms"]["samples"], many["requests"]);
  EXPECT_EQ(many["rate"], 400.0);
  EXPECT_FALSE(many.contains("responses"));
}

TEST(LoadTest, SaysWhatIsWrong) {
  Done none = Load("idle", "LD_LIBRARY_PATH=/nonexistent");
  EXPECT_EQ(none.exit_status, 4);
  EXPECT_THAT(none.wrote, HasSubstr("mete emulate up"));
  EXPECT_EQ(Load("idle", kDriver + "METE_TEST_NO_DEVICE=1").exit_status, 4);
  EXPECT_EQ(Load("compute --gpu 1").exit_status, 2);
  Done much = Load("idle --memory 2GiB --seconds 0");
  EXPECT_EQ(much.exit_status, 5);
  EXPECT_THAT(much.wrote, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  for (const char* line :
       {"", "nothing", "compute --kernel-ms 0", "compute --seconds nan", "compute --processes 0", "hog --api x",
        "hog --chunk 5parsec", "fault --kind x", "infer --rate 0", "idle --memory -1GiB", "compute --depth 0"}) {
    EXPECT_EQ(Load(line).exit_status, 2) << line;
  }
  EXPECT_EQ(Load("--help").exit_status, 0);
  EXPECT_THAT(Load("hog --help").said, HasSubstr("--api"));
  EXPECT_THAT(Load("compute --help").said, HasSubstr("Usage: mete-load compute [OPTIONS]"));
}

TEST(LoadTest, EndsWithAResultWhenAsked) {
  // The children get what the parent gets; a pipe says when they have begun.
  FILE* pipe = popen("LD_LIBRARY_PATH=" METE_SCRIPTED_CUDA " " METE_LOAD
                     " hog --hold 100000 --processes 2 --json & echo $!; wait $!; echo $?",
                     "r");
  char line[4096];
  ASSERT_NE(fgets(line, sizeof(line), pipe), nullptr);
  int pid = atoi(line);
  ASSERT_NE(fgets(line, sizeof(line), pipe), nullptr) << "no result before the hold";
  EXPECT_THAT(line, HasSubstr("\"processes\":2"));
  kill(pid, SIGTERM);
  ASSERT_NE(fgets(line, sizeof(line), pipe), nullptr);
  EXPECT_STREQ(line, "0\n");
  pclose(pipe);
}

TEST(LatenciesTest, StateNoPercentileWithoutSamples) {
  EXPECT_FALSE(Enough(19, 50));
  EXPECT_TRUE(Enough(20, 50));
  EXPECT_FALSE(Enough(999, 99));
  EXPECT_TRUE(Enough(1000, 99));
  std::vector<double> samples;
  for (int i = 1000; i >= 1; --i) samples.push_back(i);
  Json summary = Summary(samples);
  EXPECT_EQ(summary["p50"], 500.0);
  EXPECT_EQ(summary["p95"], 950.0);
  EXPECT_EQ(summary["p99"], 990.0);
  EXPECT_EQ(summary["mean"], 500.5);
  EXPECT_TRUE(Summary({1, 2, 3})["p50"].is_null());
  EXPECT_TRUE(Summary({})["max"].is_null());
}

TEST(SumTest, AddsWorkAndKeepsTheLongestTime) {
  Json a = {{"workload", "compute"}, {"processes", 1}, {"kernels", 3}, {"gpu_ms", 1.5}, {"seconds", 2.0}, {"grid", 8}};
  Json b = {{"workload", "compute"}, {"processes", 1}, {"kernels", 4}, {"gpu_ms", 2.0}, {"seconds", 2.5}, {"grid", 8}};
  Json sum = SumResults({a, b});
  EXPECT_EQ(sum["processes"], 2);
  EXPECT_EQ(sum["kernels"], 7);
  EXPECT_EQ(sum["gpu_ms"], 3.5);
  EXPECT_EQ(sum["seconds"], 2.5);
  EXPECT_EQ(sum["grid"], 8);
}

TEST(CommandLineTest, TheLastOfTwoEqualOptionsCounts) {
  auto line = ParseCommandLine({"compute", "--processes", "10", "--json", "--json", "--processes", "1"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.processes, 1u);
}

}  // namespace
}  // namespace mete::lab
