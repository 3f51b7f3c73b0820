// Any bytes: Parse refuses them with a place and a message, or what it accepts can be run, whatever it does.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/ptx/ptx.h"
#include "emulator/ptx/test_memory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace ptx = mete::emulator::ptx;
  ptx::Module module;
  ptx::Error error;
  if (!ptx::Parse(std::string_view(reinterpret_cast<const char*>(data), size), 90, &module, &error)) {
    if (error.message.empty() || error.line < 1 || error.column < 1) std::abort();
    return 0;
  }
  uint64_t globals = 0;
  for (const ptx::Global& g : module.globals()) globals += g.size;
  if (globals > (1u << 20)) return 0;  // the host would refuse them, too
  ptx::TestMemory memory;
  ptx::PlaceGlobals(&module, &memory);
  const uint64_t buffer = memory.Put(std::vector<uint32_t>(256, 1));
  ptx::Budget budget;
  budget.whole_instructions = 20'000;
  budget.sample_instructions = 4'000;
  budget.warp_limit = 40'000;
  for (const ptx::Function& f : module.functions()) {
    if (!f.is_entry) continue;
    std::vector<uint8_t> parameters(f.parameter_bytes);
    for (size_t at = 0; at + sizeof buffer <= parameters.size(); at += sizeof buffer)
      std::memcpy(&parameters[at], &buffer, sizeof buffer);
    ptx::Launch launch;
    launch.grid[0] = 2;
    launch.block[0] = 33;
    launch.dynamic_shared_bytes = 64;
    launch.parameters = parameters.data();
    const ptx::Outcome out = ptx::Run(module, f, launch, memory, budget, nullptr);
    if (out.effect && out.fault != ptx::FaultKind::kNone) std::abort();
    if (ptx::CostKey(f, launch).empty()) std::abort();
  }
  return 0;
}
