// The instructions' handlers: each does one instruction for the lanes of a mask. The decoder asks here for the handler
// of an operation on a type; null means that PTX has no such combination, or that the interpreter lacks it: the module
// is refused, with line and column.
#ifndef METE_EMULATOR_PTX_HANDLERS_H_
#define METE_EMULATOR_PTX_HANDLERS_H_

#include <string>
#include <string_view>

#include "emulator/ptx/program.h"

namespace mete::emulator::ptx {

// What the modifiers of a floating-point instruction ask for.
enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp };
inline constexpr uint8_t kFlushSubnormals = 1, kSaturate = 2, kRelu = 4, kPropagateNan = 8,
                         kRoundShift = 4;  // Instruction::flags: bits; 4-5 Rounding
inline constexpr uint8_t kRoundToInteger = 64;

// Comparison operators; the second half is "or unordered". kNum and kNan test for NaN.
enum class Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };
enum class Combine : uint8_t { kNone, kAnd, kOr, kXor };

Handler IntegerUnary(std::string_view opcode, Type type);    // neg abs not cnot popc clz brev bfind
Handler IntegerBinary(std::string_view opcode, Type type);   // add … shr, mul.lo, mul.hi, mul.wide, rem, and, or, xor
Handler IntegerTernary(std::string_view opcode, Type type);  // mad.lo mad.hi mad.wide sad bfe prmt shf.l.wrap lop3 …
Handler IntegerSaturating(std::string_view opcode);          // add.sat.s32, sub.sat.s32
Handler BitFieldInsert(Type type);                           // fourth operand in d2
Handler PredicateLogic(std::string_view opcode);             // and or xor not mov selp on predicates
// ops_bits.cc
Handler Carry(std::string_view opcode, Type type, bool high, bool in, bool out);  // add sub mad; carry: target → d2
Handler Product24(bool add, Type type, bool high);
Handler DotProduct(std::string_view opcode, Type a, Type b);  // dp4a dp2a.lo dp2a.hi
Handler BitSearch(std::string_view opcode, Type type);        // fns bmsk szext
Handler PermuteBytes(std::string_view mode);                  // prmt with a mode

Handler FloatUnary(std::string_view opcode, Type type);      // neg abs rcp sqrt rsqrt sin cos lg2 ex2 tanh
Handler FloatBinary(std::string_view opcode, Type type);     // add sub mul div min max copysign
Handler FloatTernary(std::string_view opcode, Type type);    // fma
Handler FloatModified(std::string_view opcode, Type type);   // the same with Instruction::flags honoured
Handler HalfOperation(std::string_view opcode, Type type);   // on f16, bf16 and pairs; flags honoured
Handler HalfComparison(Type type);                           // flags: Compare, 64: flush subnormals; pairs: d, d2
Handler TestProperty(std::string_view property, Type type);  // testp

Handler Comparison(Compare compare, Type type, bool flush);  // setp; count: Combine, c: its predicate
Handler SetFromPredicate(Type type);                         // set: a is a predicate
Handler SetPairFromPredicates(Type type);                    // set on pairs: a and b are predicates
Handler Move(uint32_t bytes);
Handler Select(uint32_t bytes);                        // selp
Handler SelectBySign(Type type, Type selector);        // slct
Handler Pack(uint32_t element_bytes, uint32_t count);  // elements in lists[target…]
Handler Unpack(uint32_t element_bytes, uint32_t count);
Handler Convert(Type to, Type from, uint32_t to_bytes, uint32_t from_bytes, uint8_t flags);
Handler ConvertPair();                                                  // cvt of two floats; type: the pair's
Handler ConvertTensorFloat();                                           // cvt to tf32; count: 0 .rna, 1 .rn, 2 .rz
Handler PackSaturated();                                                // cvt.pack.sat; type: of the fields
Handler WindowToGeneric(Space space, bool to_generic, uint32_t bytes);  // cvta
Handler IsSpace(Space space);

Handler Load(Space space, Type type, uint32_t register_bytes, bool vector);
Handler Store(Space space, Type type, uint32_t register_bytes, bool vector);
Handler LoadParameter(Type type, uint32_t register_bytes, bool entry);  // offset constant
Handler StoreParameter(Type type, uint32_t register_bytes);
Handler Atomic(std::string_view operation, Type type);  // old value into d; b, c operands

Handler ClockRead(uint32_t bytes, bool wall);
Handler Sleep();
Handler ActiveMask();
Handler Shuffle(std::string_view mode);  // shfl.sync and shfl
Handler Vote(std::string_view mode);
Handler MatchAny(Type type);
Handler MatchAll(Type type);
Handler Elect();
Handler Reduce(std::string_view operation, Type type);  // redux.sync

// ops_matrix.cc
enum class MatrixElement : uint8_t { kHalf, kBrain, kTensorFloat, kSigned8, kUnsigned8 };
enum class MatrixAccumulator : uint8_t { kFloat, kHalf, kInteger };
// mma.sync m16n8: count: K; flags: element of A, of B << 3, saturate 64; lists[target…]: D, A, B, C.
Handler MatrixMultiply(MatrixAccumulator accumulator);
Handler MatrixMove(bool load, bool transposed);  // ldmatrix, stmatrix; count matrices in lists[target…]

// ops_async.cc
Handler AsyncCopy();  // cp.async: a from, b to (displacement in target, flags & 1: wide), c valid bytes, count bytes
enum class BarrierWord : uint8_t { kInit, kInvalidate, kArrive, kArriveDrop, kArriveExpect, kExpect, kComplete };
Handler BarrierWordOperation(BarrierWord operation);  // mbarrier: a the word, b the count, d the state
Handler BarrierWordTest(bool parity);                 // b the state or the parity, d a predicate
Handler BarrierPendingCount();

// Lanes of an instruction's member mask that are alive and not here yet.
uint32_t MissingMembers(Warp& warp, const Instruction& in, uint32_t mask);

inline constexpr uint8_t kOnlyArrives = 1, kHasCount = 2, kNegated = 4;  // Instruction::flags of barriers
enum class BarrierReduction : uint8_t {
  kNone,
  kCount,
  kAll,
  kAny
};  // Instruction::count of barriers; c: the predicate
struct BarrierRequest {
  uint32_t barrier = 0;
  uint64_t expected = 0;  // 0: all live threads
  bool only_arrives = false;
};
BarrierRequest ReadBarrier(Warp& warp, const Instruction& in, uint32_t mask);

// Writes what bar.red gives to the lanes: `yes` of `all` threads held the predicate.
void DeliverReduction(Warp& warp, uint8_t* frame, const Instruction& in, uint32_t lanes, uint64_t yes, uint64_t all);

// "function 'add', line 12, block (3,0,0), thread (5,0,0)" of the mask's first lane.
std::string Where(const Warp& warp, const Instruction& in, uint32_t mask);

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_HANDLERS_H_
