// What a warp does on small matrices: ldmatrix, stmatrix, mma.sync. A fragment's elements lie in the lanes as the PTX
// ISA draws them: with E elements in a 32-bit register, g = lane / 4 and t = lane % 4,
//   A (16 × K)  register r, element e: row g + 8 (r & 1), column t E + e + 4 E (r / 2)
//   B (K × 8)   register r, element e: row t E + e + 4 E r, column g
//   C, D (16 × 8) element i: row g + 8 (i / 2), column 2 t + (i & 1)
// Floating-point products are summed in double and rounded once; hardware's order of additions is not documented.
#include <cmath>
#include <cstring>

#include "emulator/ptx/half.h"
#include "emulator/ptx/lanes.h"
#include "emulator/ptx/resolve.h"
#include "emulator/ptx/run_state.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint32_t kRows = 16, kColumns = 8, kMaximumDepth = 32;

double ElementOf(uint32_t word, uint32_t element, MatrixElement type) {
  switch (type) {
    case MatrixElement::kHalf: return FloatOfHalf(static_cast<uint16_t>(word >> (16 * element)));
    case MatrixElement::kBrain: return FloatOfBrain(static_cast<uint16_t>(word >> (16 * element)));
    case MatrixElement::kTensorFloat: {
      const uint32_t cut = word & 0xffffe000u;  // what the unit looks at
      float v;
      std::memcpy(&v, &cut, sizeof v);
      return v;
    }
    case MatrixElement::kSigned8: return static_cast<int8_t>(word >> (8 * element));
    case MatrixElement::kUnsigned8: return static_cast<uint8_t>(word >> (8 * element));
  }
  return 0;
}

uint32_t ElementsPerRegister(MatrixElement type) {
  return type == MatrixElement::kTensorFloat                             ? 1
         : type == MatrixElement::kHalf || type == MatrixElement::kBrain ? 2
                                                                         : 4;
}

// lists[target…]: registers of D, then A, B and C.
template <MatrixAccumulator Accumulator>
void RunMma(Warp& w, const Instruction& in, uint32_t mask) {
  const MatrixElement a_type = static_cast<MatrixElement>(in.flags & 7);
  const MatrixElement b_type = static_cast<MatrixElement>(in.flags >> 3 & 7);
  const bool saturate = (in.flags & 64) != 0;
  const uint32_t depth = in.count, each = ElementsPerRegister(a_type);
  constexpr uint32_t kResults = Accumulator == MatrixAccumulator::kHalf ? 2 : 4;
  const uint32_t a_count = depth / (2 * each), b_count = depth / (4 * each);
  const uint32_t* d_list = &w.Top().program->lists[in.target];
  const uint32_t *a_list = d_list + kResults, *b_list = a_list + a_count, *c_list = b_list + b_count;
  double a[kRows][kMaximumDepth] = {}, b[kMaximumDepth][kColumns] = {};
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint32_t g = l / 4, t = l % 4;
    for (uint32_t r = 0; r < a_count; ++r) {
      const uint32_t word = LanesOf<uint32_t>(w, a_list[r])[l];
      for (uint32_t e = 0; e < each; ++e)
        a[g + 8 * (r & 1)][t * each + e + 4 * each * (r / 2)] = ElementOf(word, e, a_type);
    }
    for (uint32_t r = 0; r < b_count; ++r) {
      const uint32_t word = LanesOf<uint32_t>(w, b_list[r])[l];
      for (uint32_t e = 0; e < each; ++e) b[t * each + e + 4 * each * r][g] = ElementOf(word, e, b_type);
    }
  }
  uint32_t results[kResults][kLanes];
  for (uint32_t l = 0; l < kLanes; ++l) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + (i & 1);
      double sum = 0;
      for (uint32_t k = 0; k < depth; ++k) sum += a[row][k] * b[k][column];
      if constexpr (Accumulator == MatrixAccumulator::kInteger) {
        const int64_t whole = static_cast<int64_t>(sum) + LanesOf<int32_t>(w, c_list[i])[l];
        results[i][l] =
            static_cast<uint32_t>(saturate ? std::max<int64_t>(INT32_MIN, std::min<int64_t>(INT32_MAX, whole)) : whole);
      } else if constexpr (Accumulator == MatrixAccumulator::kFloat) {
        const float r = static_cast<float>(sum + LanesOf<float>(w, c_list[i])[l]);
        std::memcpy(&results[i][l], &r, sizeof r);
      } else {
        const uint32_t c = LanesOf<uint32_t>(w, c_list[i / 2])[l] >> (16 * (i & 1));
        const uint32_t r = HalfOfDouble(sum + FloatOfHalf(static_cast<uint16_t>(c)));
        results[i / 2][l] = (i & 1) == 0 ? r : results[i / 2][l] | r << 16;
      }
    }
  }
  Frame& f = w.Top();
  for (uint32_t i = 0; i < kResults; ++i) {
    uint32_t* d = LanesOf<uint32_t>(w, d_list[i]);
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = (mask & kLaneBit[l]) != 0 ? results[i][l] : d[l];
    f.ready[d_list[i] / kSlotBytes] = w.now + in.latency;
  }
  // The unit does sixteen times the multiplications of the plain lanes; this instruction has been counted as one of 32.
  w.classes[kFp32] += depth / 4 - (depth >= 4 ? 1 : 0);
}

// Lane i·8 + r holds the address of row r of matrix i; lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4,
// or of column l / 4 where the matrix is transposed.
template <bool IsLoad, bool Transposed>
void RunMatrixMove(Warp& w, const Instruction& in, uint32_t mask) {
  uint8_t* host[kLanes] = {};
  const uint32_t used = mask & (in.count == 4 ? ~0u : (1u << in.count * 8) - 1);
  const bool there = in.space == Space::kShared ? Resolve<Space::kShared>(w, in, used, 16, !IsLoad, host)
                                                : Resolve<Space::kGeneric>(w, in, used, 16, !IsLoad, host);
  if (!there) return;
  Frame& f = w.Top();
  const uint32_t* list = &f.program->lists[in.target];
  for (uint32_t i = 0; i < in.count; ++i) {
    uint32_t* registers = LanesOf<uint32_t>(w, list[i]);
    if (IsLoad) f.ready[list[i] / kSlotBytes] = w.now + in.latency;
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((mask & kLaneBit[l]) == 0) continue;
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t row = Transposed ? 2 * (l % 4) + e : l / 4, column = Transposed ? l / 4 : 2 * (l % 4) + e;
        uint8_t* at = host[i * 8 + row];
        if (at == nullptr) continue;
        uint16_t value = static_cast<uint16_t>(registers[l] >> (16 * e));
        if (IsLoad) {
          std::memcpy(&value, at + column * 2, sizeof value);
          registers[l] = (registers[l] & ~(0xffffu << (16 * e))) | static_cast<uint32_t>(value) << (16 * e);
        } else {
          std::memcpy(at + column * 2, &value, sizeof value);
        }
      }
    }
  }
}

}  // namespace

Handler MatrixMultiply(MatrixAccumulator accumulator) {
  switch (accumulator) {
    case MatrixAccumulator::kFloat: return &RunMma<MatrixAccumulator::kFloat>;
    case MatrixAccumulator::kHalf: return &RunMma<MatrixAccumulator::kHalf>;
    case MatrixAccumulator::kInteger: return &RunMma<MatrixAccumulator::kInteger>;
  }
  return nullptr;
}

Handler MatrixMove(bool load, bool transposed) {
  if (load) return transposed ? &RunMatrixMove<true, true> : &RunMatrixMove<true, false>;
  return transposed ? &RunMatrixMove<false, true> : &RunMatrixMove<false, false>;
}

}  // namespace mete::emulator::ptx
