// Numbers that no program means: every wrapped function, with sizes, counts, levels and flags beyond all measure, with
// null and with handles that are none, where the driver itself only refuses them. Nothing crashes or hangs, the charge
// never wraps nor falls short of what the driver holds, and the answer is the driver's own, or "out of memory", or
// that the GPU is not the share's.
//
// The functions are those of wrapped.txt and their parameters those of data/cuda: a new one without values for one of
// its types fails here.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "interceptor/testing/quota.h"

namespace mete::interceptor::testing {
namespace {

using Call = CUresult (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t);

struct Function {
  std::string name;
  std::vector<std::string> types;
};

std::vector<Function> WrappedFunctions() {
  std::vector<std::string> names;
  std::ifstream list(METE_WRAPPED), functions(METE_FUNCTIONS);
  for (std::string line; std::getline(list, line);) {
    const size_t space = line.find(' ');
    if (!line.empty() && line[0] != '#' && line.substr(space + 1) != "use") names.push_back(line.substr(0, space));
  }
  std::vector<Function> found;
  for (std::string line; std::getline(functions, line);) {
    std::vector<std::string> fields;
    std::istringstream row(line);
    for (std::string field; std::getline(row, field, '\t');) fields.push_back(field);
    if (fields.size() != 6 || std::find(names.begin(), names.end(), fields[0]) == names.end()) continue;
    Function function{fields[0], {}};
    std::istringstream parameters(fields[5]);
    for (std::string parameter; fields[5] != "void" && std::getline(parameters, parameter, ',');) {
      const size_t start = parameter.find_first_not_of(' ');
      function.types.push_back(parameter.substr(start, parameter.rfind(' ') - start));
    }
    found.push_back(std::move(function));
  }
  REQUIRE(found.size() == names.size());
  return found;
}

constexpr uint64_t kWild = 0xdead0000beef0;  // nothing is there

class Objects {
 public:
  Objects() {
    REQUIRE(CU(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS && CU(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
    pool = OwnPool(0);
    for (size_t i = 0; i < std::size(kPatterns); ++i) {
      patterns_.emplace_back(1024, kPatterns[i]);
      patterns_.back().resize(1032, 0);  // a text ends
    }
    for (const uint64_t bytes : {uint64_t{1} << 40, uint64_t{1} << 57, ~uint64_t{0}})
      images_.push_back(ModuleOf(bytes));
  }

  // What may be passed for a parameter of this type; none: the type is not known here.
  std::vector<uint64_t> ValuesOf(const std::string& type) {
    const auto is = [&type](std::initializer_list<const char*> names) {
      for (const char* name : names) {
        if (type == name) return true;
      }
      return false;
    };
    const auto at = [](const auto* p) { return reinterpret_cast<uint64_t>(p); };
    std::vector<uint64_t> values;
    if (is({"size_t", "unsigned int", "unsigned long long", "cuuint64_t", "int", "CUdeviceptr", "CUdeviceptr_v1",
            "CUlimit", "CUmemAllocationHandleType", "CUstreamCaptureMode", "CUmemGenericAllocationHandle"})) {
      return {0,
              1,
              2,
              4096,
              kGranule,
              0x7fffffff,
              0x80000000,
              0xffffffff,
              uint64_t{1} << 32,
              (uint64_t{1} << 47) - 1,
              uint64_t{1} << 47,
              (uint64_t{1} << 48) - kGranule,
              (uint64_t{1} << 56) - 1,
              uint64_t{1} << 63,
              ~uint64_t{0} - kGranule,
              ~uint64_t{0} - 511,
              ~uint64_t{0}};
    }
    if (type == "CUdevice") return {0, 1, 2, 63, 64, 127, 128, 0x7fffffff, 0x80000000, 0xffffffff};
    if (is({"CUcontext", "CUfunction", "CUarray", "CUmipmappedArray", "CUexternalMemory", "CUmodule", "CUlibrary",
            "CUgreenCtx", "CUdevResourceDesc"}))
      return {0, 1, kWild, ~uint64_t{0}};
    if (is({"CUgraph", "CUgraphExec"})) return {0};
    if (type == "CUstream") return {0, 1, 2, at(stream)};
    if (type == "CUevent") return {0, at(event)};
    if (type == "CUmemoryPool") return {0, at(pool)};
    if (is({"const char*", "const void*"})) {
      for (const char* text : {"", "/", "/dev/null", "/dev/zero", "/proc/self/mem", "cuMemAlloc", "no such file"})
        values.push_back(at(text));
      for (const std::string& image : images_) values.push_back(at(image.c_str()));
      for (const auto& pattern : patterns_) values.push_back(at(pattern.data()));
      values.push_back(0);
      return values;
    }
    if (is({"const CUDA_ARRAY_DESCRIPTOR*", "const CUDA_ARRAY_DESCRIPTOR_v1*", "const CUDA_ARRAY3D_DESCRIPTOR*",
            "const CUDA_ARRAY3D_DESCRIPTOR_v1*"})) {
      for (size_t i = 0; i < Shapes().size(); ++i) values.push_back(at(&Shapes()[i]));
    }
    if (is({"const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*", "const CUmemAllocationProp*", "const CUmemPoolProps*",
            "const CUDA_ARRAY_DESCRIPTOR*", "const CUDA_ARRAY_DESCRIPTOR_v1*", "const CUDA_ARRAY3D_DESCRIPTOR*",
            "const CUDA_ARRAY3D_DESCRIPTOR_v1*", "CUctxCreateParams*", "CUexecAffinityParam*"})) {
      for (const auto& pattern : patterns_) values.push_back(at(pattern.data()));
      values.push_back(0);
      return values;
    }
    // Launches: absurd shapes on a stream that is one; the list of a multi-device launch is as long as one says.
    if (is({"const CUlaunchConfig*", "CUDA_LAUNCH_PARAMS*"})) {
      config_.gridDimX = config_.blockDimZ = config_.sharedMemBytes = config_.numAttrs = 0xffffffff;
      launch_.gridDimX = launch_.blockDimZ = 0xffffffff;
      return {type[0] == 'c' ? at(&config_) : at(&launch_), 0};
    }
    // Where answers go, and lists that nobody reads here.
    if (type.back() == '*' &&
        (type.rfind("const ", 0) != 0 || type == "const CUgraphNode*" || type == "const CUgraphEdgeData*")) {
      memset(places_[next_place_ %= 12], 0, sizeof places_[0]);
      return {at(places_[next_place_++]), 0};
    }
    return {};
  }

  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmemoryPool pool = nullptr;

 private:
  static constexpr uint8_t kPatterns[] = {0x00, 0xff, 0x7f, 0x80, 0x01};
  // Descriptors whose numbers make sense one by one.
  static std::vector<CUDA_ARRAY3D_DESCRIPTOR>& Shapes() {
    static std::vector<CUDA_ARRAY3D_DESCRIPTOR> shapes;
    if (!shapes.empty()) return shapes;
    for (const size_t side : {size_t{1} << 20, size_t{1} << 22, size_t{1} << 32, SIZE_MAX / 4, SIZE_MAX}) {
      shapes.push_back({side, side, side, CU_AD_FORMAT_FLOAT, 4, 0});
      shapes.push_back({side, 1, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0});
      shapes.push_back({1, 1, side, CU_AD_FORMAT_HALF, 2, 1});
      shapes.push_back({1, side, 1, CU_AD_FORMAT_FLOAT, 4, 0});
    }
    return shapes;
  }
  std::vector<std::vector<uint8_t>> patterns_;
  std::vector<std::string> images_;
  CUlaunchConfig config_{};
  CUDA_LAUNCH_PARAMS launch_{};
  uint64_t places_[12][512];
  size_t next_place_ = 0;
};

// Through one type for all of them, which the ABI allows and UBSan would not.
__attribute__((no_sanitize("undefined"))) CUresult Make(void* function, const std::vector<uint64_t>& arguments) {
  uint64_t v[12] = {};
  std::copy(arguments.begin(), arguments.end(), v);
  return reinterpret_cast<Call>(function)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11]);
}

void Explain(const Function& function, const std::vector<uint64_t>& arguments, CUresult result) {
  fprintf(stderr, "%s answered %d, charged %llu, the driver holds %llu; arguments", function.name.c_str(), result,
          static_cast<unsigned long long>(Charged()), static_cast<unsigned long long>(Truth()));
  for (const uint64_t argument : arguments) fprintf(stderr, " %#llx", static_cast<unsigned long long>(argument));
  fprintf(stderr, "\n");
}

// One function, each argument in turn and then all at random.
void Try(const Function& function, CUcontext context, Objects& objects, std::mt19937_64& dice) {
  void* const called = Symbol(function.name.c_str());
  std::vector<std::vector<uint64_t>> values;
  for (const std::string& type : function.types) {
    values.push_back(objects.ValuesOf(type));
    if (values.back().empty()) fprintf(stderr, "no values for a %s of %s\n", type.c_str(), function.name.c_str());
    REQUIRE(!values.back().empty());
  }
  std::vector<std::vector<uint64_t>> calls;
  for (size_t which = 0; which < values.size(); ++which) {
    for (const uint64_t value : values[which]) {
      std::vector<uint64_t> arguments;
      for (const auto& of : values) arguments.push_back(of[0]);
      arguments[which] = value;
      calls.push_back(arguments);
    }
  }
  for (int i = 0; i < (values.empty() ? 1 : 300); ++i) {
    calls.emplace_back();
    for (const auto& of : values) calls.back().push_back(of[dice() % of.size()]);
  }
  for (const std::vector<uint64_t>& arguments : calls) {
    const uint64_t before = Charged(), truth_before = Truth();
    alarm(60);  // a call that hangs ends the test
    const CUresult result = Make(called, arguments);
    REQUIRE(CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    const uint64_t charged = Charged(), truth = Truth();
    // What was refused is not charged; the rest is, with at least what the driver took and no more than the quota.
    const bool right = charged >= truth && charged <= kQuota && truth <= kQuota &&
                       (result == CUDA_SUCCESS || (charged <= before && truth <= truth_before));
    if (!right) Explain(function, arguments, result);
    REQUIRE(right);
  }
  alarm(0);
}

// A process for each function, so that each begins with all of the quota.
TENANT(OneFunction) {
  CUcontext context = BeginTracked();
  Objects objects;
  std::mt19937_64 dice(Seed());
  Try(WrappedFunctions()[Setting("EXTREMES_FUNCTION")], context, objects, dice);
}

class Extremes : public ::testing::TestWithParam<bool> {};
TEST_P(Extremes, NoNumberIsTooLarge) {
  StandInOptions options = Limited();
  options.tracked = GetParam();
  options.heartbeat_ahead_ns = 3'600'000'000'000;
  const std::vector<Function> functions = WrappedFunctions();
  for (size_t i = 0; i < functions.size(); ++i) {
    StandIn broker(options);
    setenv("EXTREMES_FUNCTION", std::to_string(i).c_str(), 1);
    EXPECT_EQ(RunTenant(broker, "OneFunction"), 0) << functions[i].name;
  }
}
INSTANTIATE_TEST_SUITE_P(Tracked, Extremes, ::testing::Bool());

}  // namespace
}  // namespace mete::interceptor::testing
