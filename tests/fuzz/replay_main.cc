// Runs a fuzz target without libFuzzer: every corpus file once, then deterministic random mutations of them.
// Usage: TARGET [-runs=N] [FILE|DIRECTORY…]. The seed is printed; a crash is the process's own.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

Input ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(in), {});
}

Input Mutate(const Input& seed, std::mt19937_64& random) {
  Input out = seed;
  const int edits = 1 + static_cast<int>(random() % 8);
  for (int i = 0; i < edits; ++i) {
    const size_t at = out.empty() ? 0 : random() % out.size();
    switch (random() % 4) {
      case 0: out.insert(out.begin() + static_cast<long>(at), static_cast<uint8_t>(random())); break;
      case 1:
        if (!out.empty()) out.erase(out.begin() + static_cast<long>(at));
        break;
      case 2:
        if (!out.empty()) out[at] = static_cast<uint8_t>(random());
        break;
      default:
        if (!out.empty()) out[at] ^= static_cast<uint8_t>(1u << (random() % 8));
        break;
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  long runs = 10000;
  std::vector<Input> corpus = {Input{}};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("-runs=", 0) == 0) {
      runs = std::strtol(argument.c_str() + 6, nullptr, 10);
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::directory_iterator(argument)) corpus.push_back(ReadFile(entry.path()));
    } else if (std::filesystem::exists(argument)) {
      corpus.push_back(ReadFile(argument));
    }
  }
  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  constexpr uint64_t kSeed = 20261129;
  std::mt19937_64 random(kSeed);
  for (long i = 0; i < runs; ++i) {
    const Input input = Mutate(corpus[random() % corpus.size()], random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu corpus inputs, %ld mutations, seed %llu\n", corpus.size(), runs,
              static_cast<unsigned long long>(kSeed));
  return 0;
}
