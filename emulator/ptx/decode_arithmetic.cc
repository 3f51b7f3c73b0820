// Decoding of arithmetic, bits, comparison and selection.
#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {
namespace {

uint8_t ClassOf(Type type) { return type == Type::kF64 ? kFp64 : IsFloat(type) || IsPacked(type) ? kFp32 : kAlu; }
uint16_t LatencyOf(Type type) { return type == Type::kF64 ? 8 : 4; }

Type Widened(Type type) {
  switch (type) {
    case Type::kU16: return Type::kU32;
    case Type::kS16: return Type::kS32;
    case Type::kU32: return Type::kU64;
    case Type::kS32: return Type::kS64;
    default: return Type::kNone;
  }
}

}  // namespace

bool Body::FloatForm(Statement& s, Type type, int operands) {
  uint8_t flags;
  bool approximate;
  if (!FloatFlags(s, &flags, &approximate)) return false;
  if (!Need(s, static_cast<size_t>(operands) + 1, static_cast<size_t>(operands) + 1)) return false;
  Instruction in;
  in.flags = flags;
  if (flags != 0)
    in.handler = FloatModified(s.opcode, type);
  else if (operands == 1)
    in.handler = FloatUnary(s.opcode, type);
  else if (operands == 2)
    in.handler = FloatBinary(s.opcode, type);
  else
    in.handler = FloatTernary(s.opcode, type);
  if (in.handler == nullptr) return Unsupported(s, type);
  in.instruction_class = ClassOf(type);
  in.latency = LatencyOf(type);
  const bool special = s.opcode == "div" || s.opcode == "rcp" || s.opcode == "sqrt" || s.opcode == "rsqrt" ||
                       s.opcode == "sin" || s.opcode == "cos" || s.opcode == "lg2" || s.opcode == "ex2" ||
                       s.opcode == "tanh";
  if (special) {
    in.instruction_class = kSpecial;
    in.latency = type == Type::kF64 ? 60 : approximate ? 18 : 36;
  }
  uint32_t* const slots[] = {&in.a, &in.b, &in.c};
  for (int i = 0; i < operands; ++i) {
    if (!Source(s.operands[static_cast<size_t>(i) + 1], type, slots[i])) return false;
  }
  if (!Dest(s.operands[0], type, &in.d)) return false;
  Emit(s, in);
  return true;
}

bool Body::Arithmetic(Statement& s) {
  const Type type = TakeType(s);
  const bool ternary = s.opcode == "mad" || s.opcode == "fma";
  if (type == Type::kNone) return Fail(s.where, "'" + std::string(s.opcode) + "' has no type");
  if (IsFloat(type) || IsPacked(type)) return FloatForm(s, type, ternary ? 3 : 2);
  if (TakeModifier(s, ".cc")) {
    s.modifiers.push_back(".cc");
    s.modifiers.push_back(kTypeNames[static_cast<size_t>(type)]);
    return CarryChain(s);
  }
  if (s.opcode == "fma") return Unsupported(s, type);
  std::string operation(s.opcode);
  bool wide = false;
  Instruction in;
  if (s.opcode == "mul" || s.opcode == "mad") {
    const std::string_view half = TakeOneOf(s, {".lo", ".hi", ".wide"});
    if (half.empty()) return Fail(s.where, "'" + operation + "' of integers needs .lo, .hi or .wide");
    operation += half;
    wide = half == ".wide";
    in.latency = 5;
  } else if (s.opcode == "div") {
    in.latency = 40;
    in.instruction_class = kSpecial;
  }
  const bool saturate = TakeModifier(s, ".sat");
  if (!NoMoreModifiers(s) || !Need(s, ternary ? 4 : 3, ternary ? 4 : 3)) return false;
  if (saturate) {
    if (type != Type::kS32) return Unsupported(s, type);
    in.handler = IntegerSaturating(s.opcode);
  } else {
    in.handler = ternary ? IntegerTernary(operation, type) : IntegerBinary(operation, type);
  }
  if (in.handler == nullptr) return Unsupported(s, type);
  const Type result = wide ? Widened(type) : type;
  // Addresses are sums and differences; everything else looks at the value.
  const bool sum = (s.opcode == "add" || s.opcode == "sub") && LaneBytes(type) == 8;
  const Use use = sum ? Use::kFlow : Use::kValue;
  if (!Source(s.operands[1], type, &in.a, use) || !Source(s.operands[2], type, &in.b, use)) return false;
  const bool third_flows = ternary && LaneBytes(result) == 8;
  if (ternary && !Source(s.operands[3], result, &in.c, third_flows ? Use::kFlow : Use::kValue)) return false;
  if (!Dest(s.operands[0], result, &in.d)) return false;
  if (sum) Flow(in.d, in.a), Flow(in.d, in.b);
  if (third_flows) Flow(in.d, in.c);
  if (!saturate && (s.opcode == "add" || s.opcode == "sub"))
    NoteFact(s.opcode == "add" ? Fact::Kind::kAdd : Fact::Kind::kSubtract, in);
  Emit(s, in);
  return true;
}

bool Body::Unary(Statement& s) {
  const Type type = TakeType(s);
  if (type == Type::kNone) return Fail(s.where, "'" + std::string(s.opcode) + "' has no type");
  if (IsFloat(type) || IsPacked(type)) return FloatForm(s, type, 1);
  Instruction in;
  if (s.opcode == "bfind" && TakeModifier(s, ".shiftamt")) in.flags = 1;
  if (!NoMoreModifiers(s) || !Need(s, 2, 2)) return false;
  const bool counts = s.opcode == "popc" || s.opcode == "clz" || s.opcode == "bfind";
  in.handler = type == Type::kPred && s.opcode == "not" ? PredicateLogic("not") : IntegerUnary(s.opcode, type);
  if (in.handler == nullptr) return Unsupported(s, type);
  if (counts || s.opcode == "brev") in.latency = 8;
  if (!Source(s.operands[1], type, &in.a) || !Dest(s.operands[0], counts ? Type::kU32 : type, &in.d)) return false;
  Emit(s, in);
  return true;
}

bool Body::Logic(Statement& s) {
  const Type type = TakeType(s);
  if (!NoMoreModifiers(s) || !Need(s, 3, 3)) return false;
  Instruction in;
  in.handler = type == Type::kPred ? PredicateLogic(s.opcode) : IntegerBinary(s.opcode, type);
  if (in.handler == nullptr) return Unsupported(s, type);
  const bool shift = s.opcode == "shl" || s.opcode == "shr";
  if (s.opcode == "rem") in.latency = 40, in.instruction_class = kSpecial;
  if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], shift ? Type::kU32 : type, &in.b)) return false;
  if (!Dest(s.operands[0], type, &in.d)) return false;
  Emit(s, in);
  return true;
}

bool Body::Fields(Statement& s) {
  const Type type = TakeType(s);
  std::string operation(s.opcode);
  Instruction in;
  if (s.opcode == "shf") {
    const std::string_view direction = TakeOneOf(s, {".l", ".r"}), overflow = TakeOneOf(s, {".wrap", ".clamp"});
    operation += direction;
    operation += overflow;
  }
  std::string_view permutation;
  if (s.opcode == "prmt") permutation = TakeOneOf(s, {".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"});
  if (!NoMoreModifiers(s)) return false;
  const bool insert = s.opcode == "bfi", table = s.opcode == "lop3";
  if (!Need(s, insert || table ? 5 : 4, insert || table ? 5 : 4)) return false;
  in.handler = insert ? BitFieldInsert(type) : IntegerTernary(operation, type);
  if (in.handler != nullptr && !permutation.empty()) in.handler = PermuteBytes(permutation);
  if (in.handler == nullptr) return Unsupported(s, type);
  const bool fields = insert || s.opcode == "bfe";
  if (!Source(s.operands[1], type, &in.a)) return false;
  if (!Source(s.operands[2], s.opcode == "bfe" ? Type::kU32 : type, &in.b)) return false;
  if (!Source(s.operands[3], fields ? Type::kU32 : type, &in.c)) return false;
  if (insert && !Source(s.operands[4], Type::kU32, &in.target)) return false;
  if (table) {
    if (s.operands[4].kind != OperandKind::kConstant || s.operands[4].constant.bits > 255)
      return Fail(s.operands[4].where, "a table from 0 to 255 is expected here");
    in.offset = static_cast<int64_t>(s.operands[4].constant.bits);
  }
  if (!Dest(s.operands[0], type, &in.d)) return false;
  Emit(s, in);
  return true;
}

// setp.lt{.and|.or|.xor}{.ftz}.type p{|q}, a, b{, {!}c}; set the same into a register.
bool Body::Compare_(Statement& s) {
  struct Row {
    std::string_view name;
    Compare compare;
  };
  static constexpr Row kRows[] = {{".eq", Compare::kEq},   {".ne", Compare::kNe},   {".lt", Compare::kLt},
                                  {".le", Compare::kLe},   {".gt", Compare::kGt},   {".ge", Compare::kGe},
                                  {".lo", Compare::kLt},   {".ls", Compare::kLe},   {".hi", Compare::kGt},
                                  {".hs", Compare::kGe},   {".equ", Compare::kEqu}, {".neu", Compare::kNeu},
                                  {".ltu", Compare::kLtu}, {".leu", Compare::kLeu}, {".gtu", Compare::kGtu},
                                  {".geu", Compare::kGeu}, {".num", Compare::kNum}, {".nan", Compare::kNan}};
  const Type type = TakeType(s);
  const bool to_register = s.opcode == "set";
  const Type result = to_register ? TakeType(s) : Type::kPred;
  const bool flush = TakeModifier(s, ".ftz");
  if (flush && type != Type::kF32 && !IsHalf(type)) return Unsupported(s, type);
  const std::string_view combine = TakeOneOf(s, {".and", ".or", ".xor"});
  const Row* row = nullptr;
  for (const Row& r : kRows) {
    if (row == nullptr && !s.modifiers.empty() && r.name == s.modifiers.front()) row = &r;
  }
  if (row == nullptr) return Fail(s.where, "'" + std::string(s.opcode) + "' needs a comparison such as .lt");
  s.modifiers.erase(s.modifiers.begin());
  const size_t operands = combine.empty() ? 3 : 4;
  if (!NoMoreModifiers(s) || !Need(s, operands, operands)) return false;
  Instruction in;
  in.handler = IsHalf(type) ? HalfComparison(type) : Comparison(row->compare, type, flush);
  if (in.handler == nullptr) return Unsupported(s, type);
  if (IsHalf(type)) in.flags = static_cast<uint8_t>(static_cast<uint8_t>(row->compare) | (flush ? 64 : 0));
  in.count = static_cast<uint8_t>(combine == ".and"   ? Combine::kAnd
                                  : combine == ".or"  ? Combine::kOr
                                  : combine == ".xor" ? Combine::kXor
                                                      : Combine::kNone);
  in.instruction_class = ClassOf(type);
  if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], type, &in.b)) return false;
  if (!combine.empty() && !Predicate(s.operands[3], &in.c)) return false;
  Operand& first = s.operands[0];
  if (to_register) {
    in.d = AllocateSlot(0);
    NoteWrite(in.d);
    if (IsPacked(type)) in.d2 = AllocateSlot(0);
    Emit(s, in);
    Instruction set;
    set.handler = IsPacked(type) ? SetPairFromPredicates(result) : SetFromPredicate(result);
    if (set.handler == nullptr) return Unsupported(s, result);
    set.a = in.d;
    if (IsPacked(type)) set.b = in.d2;
    Touch(in.d);
    if (!Dest(first, result, &set.d)) return false;
    Emit(s, set);
    return true;
  }
  if (!first.elements.empty() && !Dest(first.elements[0], Type::kPred, &in.d2)) return false;
  if (!Dest(first, Type::kPred, &in.d)) return false;
  if (combine.empty() && !IsFloat(type) && !IsPacked(type) && SizeOf(type) >= 4)
    NoteFact(Fact::Kind::kCompare, in, row->compare, type);
  Emit(s, in);
  return true;
}

bool Body::Selection(Statement& s) {
  const Type selector = s.opcode == "slct" ? TakeType(s) : Type::kPred;
  const Type type = TakeType(s);
  TakeModifier(s, ".ftz");
  if (!NoMoreModifiers(s) || !Need(s, 4, 4)) return false;
  Instruction in;
  in.handler = s.opcode == "slct"    ? SelectBySign(type, selector)
               : type == Type::kPred ? PredicateLogic("selp")
                                     : Select(SizeOf(type));
  if (in.handler == nullptr) return Unsupported(s, type);
  const bool flows = LaneBytes(type) == 8;
  const Use use = flows ? Use::kFlow : Use::kValue;
  if (!Source(s.operands[1], type, &in.a, use) || !Source(s.operands[2], type, &in.b, use)) return false;
  if (s.opcode == "slct" ? !Source(s.operands[3], selector, &in.c) : !Predicate(s.operands[3], &in.c)) return false;
  if (!Dest(s.operands[0], type, &in.d)) return false;
  if (flows) Flow(in.d, in.a), Flow(in.d, in.b);
  Emit(s, in);
  return true;
}

bool Body::Test(Statement& s) {
  const Type type = TakeType(s);
  if (s.opcode == "copysign") return FloatForm(s, type, 2);
  Instruction in;
  if (s.modifiers.size() == 1) in.handler = TestProperty(s.modifiers.front(), type);
  if (in.handler == nullptr) return Unsupported(s, type);
  if (!Need(s, 2, 2) || !Source(s.operands[1], type, &in.a) || !Dest(s.operands[0], Type::kPred, &in.d)) return false;
  Emit(s, in);
  return true;
}

}  // namespace mete::emulator::ptx
