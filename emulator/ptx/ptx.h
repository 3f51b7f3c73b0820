// PTX text: parse it, know its functions, run it on memory, and know what it costs. The PTX ISA as NVIDIA documents it;
// nothing here knows a kernel by name.
//
//   ptx::Module module; ptx::Error error;
//   if (!ptx::Parse(text, driver_isa_version, &module, &error)) …   // line, column, message
//   const ptx::Function* f = module.FindEntry("add");
//   ptx::Outcome out = ptx::Run(*f, launch, memory, budget);
//
// A Module is immutable after Parse and may be used from any thread; Run is re-entrant. C++ runtime and libc only.
#ifndef METE_EMULATOR_PTX_PTX_H_
#define METE_EMULATOR_PTX_PTX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/engine/work.h"

namespace mete::emulator::ptx {

enum class ErrorKind { kInvalidPtx /* 218 */, kUnsupportedVersion /* 222 */ };

struct Error {
  ErrorKind kind = ErrorKind::kInvalidPtx;
  int line = 0, column = 0;  // from 1
  std::string message;       // "unknown opcode 'foo'", "unresolved extern function '_Z13get_global_idj'"
};

struct Parameter {
  std::string name;
  uint32_t offset = 0, size = 0, alignment = 1;  // in the parameter buffer
  // Nothing but addresses is made of it (or it is not used): its value does not steer the kernel, see CostKey.
  bool address_only = false;
};

// A module-scope variable (.global, .const); the host gives it an address before a function of the module runs.
struct Global {
  std::string name;
  uint64_t size = 0;
  uint32_t alignment = 1;
  bool constant = false;
  std::vector<uint8_t> initial;  // may be shorter than size: the rest is zero
  // offset → name of the global whose address stands there, plus the 64-bit addend that `initial` has at that offset
  std::vector<std::pair<uint64_t, std::string>> address_of;
};

struct Program;  // decoded instructions

struct Function {
  std::string name;
  bool is_entry = false;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;             // per thread
  uint32_t registers = 0;               // per thread, an estimate from live virtual registers
  uint32_t max_threads[3] = {0, 0, 0};  // .maxntid, 0: not given
  bool exact_threads = false;           // .reqntid: the block is exactly that
  // A loop's number of turns depends on what stands in memory, so two launches alike may cost differently.
  bool steered_by_memory = false;
  std::shared_ptr<const Program> program;
};

class Module {
 public:
  const Function* FindEntry(std::string_view name) const;
  const std::vector<Function>& functions() const { return functions_; }
  const std::vector<Global>& globals() const { return globals_; }
  // Gives globals()[i] its device address. Before the first Run, by one thread.
  void Place(size_t index, uint64_t address);
  uint32_t isa_version() const { return isa_version_; }  // 78 for .version 7.8
  uint32_t target() const { return target_; }            // 70 for sm_70

 private:
  friend bool Parse(std::string_view, uint32_t, Module*, Error*);
  friend class Parser;
  friend class Interpreter;
  std::vector<Function> functions_;
  std::vector<Global> globals_;
  std::shared_ptr<std::vector<uint64_t>> addresses_;
  uint32_t isa_version_ = 0, target_ = 0;
};

// max_isa_version: newest .version accepted (90 for CUDA 13.0). max_target: newest sm_ of the GPU, 0 for any.
bool Parse(std::string_view text, uint32_t max_isa_version, Module* module, Error* error);

// Device memory as the interpreter sees it. Implementations are thread-safe.
//
// A Run keeps a translation for as long as it lasts: memory must stay where it is until Run returns. It asks for whole
// 4096-byte pages first and for the exact bytes where a page is not inside one allocation; volatile, relaxed and
// stronger loads ask each time.
class Memory {
 public:
  virtual ~Memory() = default;
  // Host pointer to [address, address + size) of one allocation, or null: an illegal access. Content-less memory
  // (beyond the backing budget) yields a scratch buffer for writes and zeroes for reads, and is counted there.
  virtual uint8_t* Translate(uint64_t address, size_t size, bool write) = 0;
};

struct Launch {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  const uint8_t* parameters = nullptr;  // parameter_bytes of them
  double clock_hz = 1.41e9;             // for clock64 / globaltimer inside the run
  uint64_t start_ns = 0;                // globaltimer and clock64 at the start
  uint32_t sm_count = 1;                // for %smid, %nsmid
};

enum class Fidelity : uint32_t { kExact, kExtrapolated, kCached, kUnbounded };

struct Budget {
  uint64_t whole_instructions = 50'000'000;  // run everything if the launch needs no more lane instructions than this
  uint64_t sample_instructions = 2'000'000;  // else this much on a sample of warps for the cost
  uint64_t warp_limit = 500'000'000;         // one warp longer than this without a known bound: unbounded
};

enum class FaultKind : uint32_t {
  kNone = 0,
  kIllegalAddress /* 700 */,
  kMisalignedAddress /* 716 */,
  kLaunchFailed /* 719: trap, bad call */
};

struct Outcome {
  KernelCost cost;
  Fidelity fidelity = Fidelity::kExact;
  // Every block was executed: memory has the kernel's result. Else it is *timed only*: what the sampled blocks wrote is
  // there, the rest is not, and readers must not rely on either.
  bool effect = false;
  FaultKind fault = FaultKind::kNone;
  uint64_t fault_address = 0;
  std::string fault_detail;  // function, line, thread
};

// Executes or samples one launch. Never blocks on anything but its own work; `cancelled` (may be null) is polled so
// that an endless kernel can be abandoned.
Outcome Run(const Module& module, const Function& function, const Launch& launch, Memory& memory, const Budget& budget,
            const bool volatile* cancelled);

// A key under which the cost of a launch may be remembered while the module lives: the function, the geometry and every
// parameter byte that may steer it (not those of address_only parameters).
std::string CostKey(const Function& function, const Launch& launch);

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_PTX_H_
