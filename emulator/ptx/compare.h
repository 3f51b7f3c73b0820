// What PTX's comparisons mean, for every type: ordered ones are false, unordered ones (equ, ltu, …) true if an operand
// is not a number. Header-only, pure; with a constant comparison it folds to one instruction.
#ifndef METE_EMULATOR_PTX_COMPARE_H_
#define METE_EMULATOR_PTX_COMPARE_H_

#include "emulator/ptx/handlers.h"

namespace mete::emulator::ptx {

template <typename T>
[[gnu::always_inline]] inline bool Holds(Compare compare, T a, T b) {
  const bool unordered = a != a || b != b;
  switch (compare) {
    case Compare::kEq: return a == b;
    case Compare::kNe: return a != b && !unordered;
    case Compare::kLt: return a < b;
    case Compare::kLe: return a <= b;
    case Compare::kGt: return a > b;
    case Compare::kGe: return a >= b;
    case Compare::kEqu: return a == b || unordered;
    case Compare::kNeu: return a != b || unordered;
    case Compare::kLtu: return a < b || unordered;
    case Compare::kLeu: return a <= b || unordered;
    case Compare::kGtu: return a > b || unordered;
    case Compare::kGeu: return a >= b || unordered;
    case Compare::kNum: return !unordered;
    case Compare::kNan: return unordered;
  }
  return false;
}

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_COMPARE_H_
