// Scenario and workload files are written by people and by programs: any bytes give a scenario or an error with a
// place, and what is accepted can be taken apart into cases.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "emulator/simulate/scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto scenario = mete::emulator::ParseScenario(text, "fuzz.yaml");
  if (scenario.ok()) {
    if (scenario->shares.empty()) std::abort();
    for (const mete::emulator::ExpectSpec& expect : scenario->expect) {
      if (expect.share >= scenario->shares.size()) std::abort();
    }
  } else if (mete::Message(scenario.status()).rfind("fuzz.yaml:", 0) != 0 &&
             mete::Message(scenario.status()).find("cannot be read") == std::string::npos) {
    std::abort();  // an error without its place
  }
  mete::emulator::Workloads workloads;
  (void)mete::emulator::ReadWorkloads(text, "fuzz.yaml", &workloads);
  return 0;
}
