// What the decoder notes about a body while it reads it, and what follows from that: loops whose number of turns is
// known when they are entered, and whether memory steers how often a loop turns. Pure functions of the notes; no state.
#ifndef METE_EMULATOR_PTX_LOOPS_H_
#define METE_EMULATOR_PTX_LOOPS_H_

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/ptx/program.h"

namespace mete::emulator::ptx {

struct Fact {  // an integer instruction that is simple enough to follow
  enum class Kind : uint8_t { kAdd, kSubtract, kMove, kCompare } kind = Kind::kMove;
  uint32_t pc = 0, d = 0, a = 0, b = 0;
  uint8_t compare = 0;  // Compare
  Type type = Type::kNone;
};

struct BodyNotes {
  std::vector<Fact> facts;                            // by pc
  std::vector<std::pair<uint32_t, uint32_t>> reads;   // pc, slot; by pc
  std::vector<std::pair<uint32_t, uint32_t>> writes;  // pc, slot; by pc
  std::vector<uint32_t> loads;                        // instructions whose result comes from memory others may write
};

// Fills in program->loops and marks their back branches. slot_bytes: lane width of each slot.
void FindCountedLoops(Program* program, const BodyNotes& notes,
                      const std::unordered_map<uint32_t, uint32_t>& slot_bytes);

bool SteeredByMemory(const Program& program, const BodyNotes& notes);

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_LOOPS_H_
