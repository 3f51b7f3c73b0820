// Decoding of control flow and of what lanes do together; and the table of all opcodes.
#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {

bool Body::Branch(Statement& s) {
  TakeModifier(s, ".uni");
  if (!NoMoreModifiers(s) || !Need(s, 1, 1)) return false;
  if (s.operands[0].kind != OperandKind::kName) return Fail(s.operands[0].where, "a label is expected here");
  Instruction in;
  in.kind = Kind::kBranch;
  in.instruction_class = kControl;
  label_uses_.push_back({static_cast<uint32_t>(program_->code.size()), s.operands[0].name, s.operands[0].where});
  Emit(s, in);
  return true;
}

bool Body::Leave(Statement& s) {
  TakeModifier(s, ".uni");
  if (!NoMoreModifiers(s) || !Need(s, 0, 0)) return false;
  Instruction in;
  in.kind = s.opcode == "ret" ? Kind::kReturn : s.opcode == "exit" ? Kind::kExit : Kind::kTrap;
  in.instruction_class = kControl;
  Emit(s, in);
  return true;
}

bool Body::Barrier(Statement& s) {
  if (TakeModifier(s, ".warp")) {
    TakeModifier(s, ".sync");
    if (!NoMoreModifiers(s) || !Need(s, 1, 1)) return false;
    Instruction in;
    in.kind = Kind::kConverge;
    in.instruction_class = kControl;
    if (!Source(s.operands[0], Type::kB32, &in.target)) return false;
    Emit(s, in);
    return true;
  }
  TakeModifier(s, ".cta");
  TakeModifier(s, ".aligned");
  const std::string_view form = TakeOneOf(s, {".sync", ".arrive"});
  if (form.empty()) return Fail(s.where, "'" + std::string(s.opcode) + "' needs .sync or .arrive");
  if (!NoMoreModifiers(s) || !Need(s, form == ".arrive" ? 2 : 1, 2)) return false;
  Instruction in;
  in.kind = Kind::kBarrier;
  in.instruction_class = kControl;
  if (form == ".arrive") in.flags |= kOnlyArrives;
  if (!Source(s.operands[0], Type::kU32, &in.a)) return false;
  if (s.operands.size() == 2) {
    in.flags |= kHasCount;
    if (!Source(s.operands[1], Type::kU32, &in.b)) return false;
  }
  program_->synchronises = true;
  Emit(s, in);
  return true;
}

bool Body::Together(Statement& s) {
  Instruction in;
  in.kind = Kind::kConverge;
  in.target = kZeroSlot;
  if (s.opcode == "activemask") {
    const Type type = TakeType(s);
    in.kind = Kind::kPlain;
    in.handler = ActiveMask();
    if (type != Type::kB32) return Unsupported(s, type);
    if (!NoMoreModifiers(s) || !Need(s, 1, 1) || !Dest(s.operands[0], type, &in.d)) return false;
    Emit(s, in);
    return true;
  }
  const bool sync = TakeModifier(s, ".sync");
  if (s.opcode == "shfl") {
    const std::string_view mode = TakeOneOf(s, {".up", ".down", ".bfly", ".idx"});
    const Type type = TakeType(s);
    if (type != Type::kB32) return Unsupported(s, type);
    if (mode.empty()) return Fail(s.where, "'shfl' needs .up, .down, .bfly or .idx");
    if (!NoMoreModifiers(s) || !Need(s, sync ? 5 : 4, sync ? 5 : 4)) return false;
    in.handler = Shuffle(mode);
    in.instruction_class = kShared;
    in.latency = 23;
    if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], type, &in.b) ||
        !Source(s.operands[3], type, &in.c))
      return false;
    if (sync && !Source(s.operands[4], type, &in.target)) return false;
    Operand& first = s.operands[0];
    if (!first.elements.empty() && !Dest(first.elements[0], Type::kPred, &in.d2)) return false;
    if (!Dest(first, type, &in.d)) return false;
  } else if (s.opcode == "vote") {
    const std::string_view mode = TakeOneOf(s, {".all", ".any", ".uni", ".ballot"});
    const Type type = TakeType(s);
    in.handler = Vote(mode);
    if (in.handler == nullptr) return Fail(s.where, "'vote' needs .all, .any, .uni or .ballot");
    if (type != (mode == ".ballot" ? Type::kB32 : Type::kPred)) return Unsupported(s, type);
    if (!NoMoreModifiers(s) || !Need(s, sync ? 3 : 2, sync ? 3 : 2)) return false;
    if (!Predicate(s.operands[1], &in.a) || (sync && !Source(s.operands[2], Type::kB32, &in.target))) return false;
    in.latency = 8;
    if (!Dest(s.operands[0], type, &in.d)) return false;
  } else if (s.opcode == "match") {
    const Type type = TakeType(s);
    if (!sync || !TakeModifier(s, ".any")) return Fail(s.where, "only match.any.sync is supported");
    in.handler = MatchAny(type);
    if (in.handler == nullptr) return Unsupported(s, type);
    if (!NoMoreModifiers(s) || !Need(s, 3, 3)) return false;
    if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], Type::kB32, &in.target) ||
        !Dest(s.operands[0], Type::kB32, &in.d))
      return false;
  } else {
    const std::string_view operation = TakeOneOf(s, {".add", ".min", ".max", ".and", ".or", ".xor"});
    const Type type = TakeType(s);
    in.handler = Reduce(operation, type);
    if (in.handler == nullptr) return Unsupported(s, type);
    if (!sync || !NoMoreModifiers(s) || !Need(s, 3, 3)) return Fail(s.where, "'redux' needs .sync");
    if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], Type::kB32, &in.target) ||
        !Dest(s.operands[0], type, &in.d))
      return false;
  }
  Emit(s, in);
  return true;
}

bool Body::Sleeping(Statement& s) {
  const Type type = TakeType(s);
  if (!NoMoreModifiers(s) || !Need(s, 1, 1)) return false;
  if (type != Type::kU32) return Unsupported(s, type);
  Instruction in;
  in.handler = Sleep();
  in.instruction_class = kControl;
  if (!Source(s.operands[0], type, &in.a)) return false;
  Emit(s, in);
  return true;
}

const std::unordered_map<std::string_view, Body::Decoder>& Body::Decoders() {
  static const auto* const table = new std::unordered_map<std::string_view, Decoder>{{"add", &Body::Arithmetic},
                                                                                     {"sub", &Body::Arithmetic},
                                                                                     {"mul", &Body::Arithmetic},
                                                                                     {"mad", &Body::Arithmetic},
                                                                                     {"fma", &Body::Arithmetic},
                                                                                     {"div", &Body::Arithmetic},
                                                                                     {"min", &Body::Arithmetic},
                                                                                     {"max", &Body::Arithmetic},
                                                                                     {"neg", &Body::Unary},
                                                                                     {"abs", &Body::Unary},
                                                                                     {"not", &Body::Unary},
                                                                                     {"cnot", &Body::Unary},
                                                                                     {"popc", &Body::Unary},
                                                                                     {"clz", &Body::Unary},
                                                                                     {"brev", &Body::Unary},
                                                                                     {"bfind", &Body::Unary},
                                                                                     {"rcp", &Body::Unary},
                                                                                     {"sqrt", &Body::Unary},
                                                                                     {"rsqrt", &Body::Unary},
                                                                                     {"sin", &Body::Unary},
                                                                                     {"cos", &Body::Unary},
                                                                                     {"lg2", &Body::Unary},
                                                                                     {"ex2", &Body::Unary},
                                                                                     {"tanh", &Body::Unary},
                                                                                     {"and", &Body::Logic},
                                                                                     {"or", &Body::Logic},
                                                                                     {"xor", &Body::Logic},
                                                                                     {"shl", &Body::Logic},
                                                                                     {"shr", &Body::Logic},
                                                                                     {"rem", &Body::Logic},
                                                                                     {"bfe", &Body::Fields},
                                                                                     {"bfi", &Body::Fields},
                                                                                     {"prmt", &Body::Fields},
                                                                                     {"shf", &Body::Fields},
                                                                                     {"lop3", &Body::Fields},
                                                                                     {"sad", &Body::Fields},
                                                                                     {"setp", &Body::Compare_},
                                                                                     {"set", &Body::Compare_},
                                                                                     {"selp", &Body::Selection},
                                                                                     {"slct", &Body::Selection},
                                                                                     {"testp", &Body::Test},
                                                                                     {"copysign", &Body::Test},
                                                                                     {"mov", &Body::Mov},
                                                                                     {"cvt", &Body::Cvt},
                                                                                     {"cvta", &Body::Cvta},
                                                                                     {"isspacep", &Body::Isspacep},
                                                                                     {"ld", &Body::LoadStore},
                                                                                     {"ldu", &Body::LoadStore},
                                                                                     {"st", &Body::LoadStore},
                                                                                     {"atom", &Body::AtomicOperation},
                                                                                     {"red", &Body::AtomicOperation},
                                                                                     {"membar", &Body::MemoryOrder},
                                                                                     {"fence", &Body::MemoryOrder},
                                                                                     {"prefetch", &Body::MemoryOrder},
                                                                                     {"prefetchu", &Body::MemoryOrder},
                                                                                     {"bra", &Body::Branch},
                                                                                     {"ret", &Body::Leave},
                                                                                     {"exit", &Body::Leave},
                                                                                     {"trap", &Body::Leave},
                                                                                     {"brkpt", &Body::Leave},
                                                                                     {"bar", &Body::Barrier},
                                                                                     {"barrier", &Body::Barrier},
                                                                                     {"shfl", &Body::Together},
                                                                                     {"vote", &Body::Together},
                                                                                     {"match", &Body::Together},
                                                                                     {"redux", &Body::Together},
                                                                                     {"activemask", &Body::Together},
                                                                                     {"nanosleep", &Body::Sleeping}};
  return *table;
}

}  // namespace mete::emulator::ptx
