// Decoding of the less plain integer operations: carry chains, 24-bit products, dot products, bit searches.
#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {

// add.cc sub.cc mad.cc write CC.CF; addc subc madc read it, and write it with .cc. One hidden predicate per function.
bool Body::CarryChain(Statement& s) {
  const Type type = TakeType(s);
  const bool out = TakeModifier(s, ".cc"), reads = s.opcode.back() == 'c';
  const std::string_view operation = reads ? s.opcode.substr(0, s.opcode.size() - 1) : s.opcode;
  const bool mad = operation == "mad";
  const std::string_view half = mad ? TakeOneOf(s, {".lo", ".hi"}) : ".lo";
  if (half.empty()) return Fail(s.where, "'" + std::string(s.opcode) + "' needs .lo or .hi");
  if (!NoMoreModifiers(s) || !Need(s, mad ? 4 : 3, mad ? 4 : 3)) return false;
  Instruction in;
  // addc without .cc reads the carry only; a form that does neither is not PTX.
  in.handler = Carry(operation, type, half == ".hi", reads, out);
  if (in.handler == nullptr) return Unsupported(s, type);
  if (carry_slot_ == 0) carry_slot_ = AllocateSlot(0);
  if (mad) in.latency = 5;
  if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], type, &in.b)) return false;
  if (mad && !Source(s.operands[3], type, &in.c)) return false;
  if (!Dest(s.operands[0], type, &in.d)) return false;
  in.target = carry_slot_;
  if (reads) Touch(carry_slot_);
  if (out) {
    in.d2 = carry_slot_;
    NoteWrite(carry_slot_);
  }
  Emit(s, in);
  return true;
}

bool Body::Product24Bits(Statement& s) {
  const Type type = TakeType(s);
  const bool add = s.opcode == "mad24";
  const std::string_view half = TakeOneOf(s, {".lo", ".hi"});
  if (half.empty()) return Fail(s.where, "'" + std::string(s.opcode) + "' needs .lo or .hi");
  if (!NoMoreModifiers(s) || !Need(s, add ? 4 : 3, add ? 4 : 3)) return false;
  Instruction in;
  in.latency = 5;
  in.handler = Product24(add, type, half == ".hi");
  if (in.handler == nullptr) return Unsupported(s, type);
  if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], type, &in.b)) return false;
  if (add && !Source(s.operands[3], type, &in.c)) return false;
  if (!Dest(s.operands[0], type, &in.d)) return false;
  Emit(s, in);
  return true;
}

// dp4a.atype.btype d, a, b, c; dp2a.{lo,hi}.atype.btype
bool Body::Dot(Statement& s) {
  const Type b = TakeType(s), a = TakeType(s);
  std::string operation(s.opcode);
  operation += TakeOneOf(s, {".lo", ".hi"});
  if (!NoMoreModifiers(s) || !Need(s, 4, 4)) return false;
  Instruction in;
  in.handler = DotProduct(operation, a, b);
  if (in.handler == nullptr) return Unsupported(s, a);
  if (!Source(s.operands[1], Type::kB32, &in.a) || !Source(s.operands[2], Type::kB32, &in.b) ||
      !Source(s.operands[3], Type::kU32, &in.c) || !Dest(s.operands[0], Type::kU32, &in.d))
    return false;
  Emit(s, in);
  return true;
}

bool Body::Search(Statement& s) {
  const Type type = TakeType(s);
  const bool three = s.opcode == "fns";
  Instruction in;
  if (!three) {
    const std::string_view overflow = TakeOneOf(s, {".wrap", ".clamp"});
    if (overflow.empty()) return Fail(s.where, "'" + std::string(s.opcode) + "' needs .wrap or .clamp");
    in.flags = overflow == ".wrap" ? 1 : 0;
  }
  if (!NoMoreModifiers(s) || !Need(s, three ? 4 : 3, three ? 4 : 3)) return false;
  in.handler = BitSearch(s.opcode, type);
  in.latency = 8;
  if (in.handler == nullptr) return Unsupported(s, type);
  if (!Source(s.operands[1], Type::kB32, &in.a) || !Source(s.operands[2], Type::kB32, &in.b)) return false;
  if (three && !Source(s.operands[3], Type::kS32, &in.c)) return false;
  if (!Dest(s.operands[0], type, &in.d)) return false;
  Emit(s, in);
  return true;
}

}  // namespace mete::emulator::ptx
