// The decoded form of a function: what the interpreter runs. Immutable after Parse, shared by every run.
//
// Operands are byte offsets into a warp's *frame*: 32 lanes side by side per register, so that one instruction is one
// loop over lanes. Constants, special registers and addresses of variables are registers too, filled when a frame is
// made. Every register begins at a multiple of kSlotBytes; offset / kSlotBytes is its place on the scoreboard.
#ifndef METE_EMULATOR_PTX_PROGRAM_H_
#define METE_EMULATOR_PTX_PROGRAM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "emulator/engine/work.h"
#include "emulator/ptx/types.h"

namespace mete::emulator::ptx {

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kSlotBytes = 64;
inline constexpr uint32_t kZeroSlot = 0;     // reads as zero, always ready: the operand an instruction does not have
inline constexpr uint32_t kTrashSlot = 256;  // the result an instruction does not have
inline constexpr uint32_t kFirstSlot = 512;

// Generic addresses of the spaces that are not device memory. Far above any user-space address.
inline constexpr uint64_t kSharedWindow = 0x00ff'0000'0000'0000;
inline constexpr uint64_t kLocalWindow = 0x00fe'0000'0000'0000;
inline constexpr uint64_t kParamWindow = 0x00fd'0000'0000'0000;
inline constexpr uint64_t kWindowMask = 0xffff'0000'0000'0000;
// A device function's own parameters: in the parameter window, with the depth of its frame in bits 24 to 46.
inline constexpr uint64_t kAreaBit = uint64_t{1} << 47;
inline constexpr uint32_t kAreaDepthShift = 24;
// Addresses of functions: window + 16 · (index + 1). They can be called, not read.
inline constexpr uint64_t kFunctionWindow = 0x00fc'0000'0000'0000;
inline constexpr uint64_t FunctionAddress(uint32_t index) { return kFunctionWindow + 16 * (uint64_t{index} + 1); }

struct Warp;
struct Instruction;
using Handler = void (*)(Warp& warp, const Instruction& in, uint32_t mask);

enum class Kind : uint8_t {
  kPlain,   // handler works on lanes; cannot fail
  kMemory,  // handler may fault
  kBranch,
  kBranchIndexed,  // a: index into the `offset` instructions at lists[target]
  kCall,
  kCallIndirect,  // a: address of a function
  kReturn,
  kExit,
  kTrap,
  kBarrier,   // arrives and, unless only_arrives, waits
  kConverge,  // handler needs the lanes of a member mask together (shfl, vote, match, bar.warp)
};

struct Instruction {
  Handler handler = nullptr;
  uint32_t d = kTrashSlot, a = kZeroSlot, b = kZeroSlot, c = kZeroSlot;
  uint32_t d2 = kTrashSlot;    // second result
  uint32_t guard = kZeroSlot;  // predicate slot; kZeroSlot: none
  bool guard_negated = false;
  Kind kind = Kind::kPlain;
  uint8_t instruction_class = kAlu;
  uint8_t count = 1;     // vector elements, or a small modifier of the handler's own
  uint16_t latency = 4;  // cycles until the result can be used
  uint8_t flags = 0;     // the handler's own
  Space space = Space::kGeneric;
  bool wide_address = true;  // a is a 64-bit register
  bool whole_warp = false;   // kConverge: all lanes are members, target is free
  bool bypass = false;       // volatile and stronger: no cached translation
  Type type = Type::kNone, source_type = Type::kNone;
  uint8_t source_bytes = 0, result_bytes = 0;  // lane widths of registers that differ from the type's
  int64_t offset = 0;                          // address displacement
  uint32_t target = 0;                         // branch: instruction; call: index into calls; vectors: index into lists
  uint32_t line = 0;
};

enum class ConstantKind : uint8_t { kValue, kGlobal, kShared, kLocal, kSpecial, kPredicate, kArea };

struct Constant {
  uint32_t slot;
  uint8_t bytes;  // lane width
  ConstantKind kind;
  uint32_t index;  // variable or special register
  uint64_t value;  // value or addend
};

// Special registers that keep their value for the life of a warp.
enum class Special : uint32_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kWarpSize,
  kSmid,
  kNsmid,
  kGridid,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kDynamicSmemSize,
  kTotalSmemSize,
  kZero,  // %envreg, %pm and other things that read as zero here
  kOne,   // a cluster of one block
  kSpecials
};

struct CallCopy {
  uint32_t from, to, bytes;
};  // offsets in per-lane parameter areas

struct Call {
  static constexpr uint32_t kIndirect = 0xffffffff;
  uint32_t function = 0;            // index into the module's functions, or kIndirect
  std::string shape;                // of an indirect one: what the function must look like, see Program::shape
  std::vector<CallCopy> arguments;  // caller's area → callee's
  std::vector<CallCopy> results;    // callee's area → caller's
};

struct SharedVariable {
  std::string name;
  uint32_t bytes = 0, alignment = 1;
  bool dynamic = false;
};

// A loop whose number of turns is known when it is entered: every way out compares a register that changes by the same
// amount in each turn with one that does not change. Instruction::offset of its back branch is its index + 1.
struct LoopStep {  // slot += or -= the sum of what stands in the amounts, once a turn
  uint32_t slot = 0, bytes = 4;
  std::vector<std::pair<uint32_t, bool>> amounts;  // slot, subtracted
};
struct LoopExit {
  uint8_t compare = 0;  // Compare: the loop goes on while `value compare bound`
  Type type = Type::kNone;
  uint32_t step = 0;                              // index of the register it follows
  std::vector<std::pair<uint32_t, bool>> offset;  // what is added to it before the comparison of the coming turn
  uint32_t bound = 0;                             // slot
};
struct Loop {
  uint32_t head = 0, back = 0;  // instructions
  bool irregular = false;       // has branches of its own: turns may differ
  std::vector<LoopStep> steps;
  std::vector<LoopExit> exits;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<Loop> loops;
  std::string shape;  // sizes of results and arguments: functions of one shape may be called alike
  std::vector<Constant> constants;
  std::vector<uint32_t> lists;  // registers of vector operands
  std::vector<Call> calls;
  uint32_t frame_bytes = kFirstSlot;
  uint32_t area_bytes = 0;    // per lane: a device function's own parameters, then those of its calls
  uint32_t local_bytes = 0;   // per lane, this function alone
  bool synchronises = false;  // has block-wide barriers
  bool uses_shared = false;
  bool calls_indirectly = false;
  bool steered_by_memory = false;  // how often a loop turns depends on what stands in memory
  // For an entry: where each of the module's shared variables stands in its block (or kNotThere).
  static constexpr uint32_t kNotThere = 0xffffffff;
  std::vector<uint32_t> shared_offsets;
  std::vector<uint32_t> shared_used;   // variables this function names itself
  bool synchronises_anywhere = false;  // for an entry: here or in what it calls
};

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_PROGRAM_H_
