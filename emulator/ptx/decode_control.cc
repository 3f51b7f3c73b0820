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
  if (s.opcode == "ret") StoreReturns(s);
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
  const std::string_view form = TakeOneOf(s, {".sync", ".arrive", ".red"});
  if (form.empty()) return Fail(s.where, "'" + std::string(s.opcode) + "' needs .sync, .arrive or .red");
  Instruction in;
  in.kind = Kind::kBarrier;
  in.instruction_class = kControl;
  in.count = 0;
  size_t first = 0, last = s.operands.size();  // what stands between result and predicate: barrier and thread count
  if (form == ".red") {
    const std::string_view operation = TakeOneOf(s, {".popc", ".and", ".or"});
    const bool counts = operation == ".popc";
    const Type type = TakeType(s);
    if (operation.empty() || type != (counts ? Type::kU32 : Type::kPred))
      return Fail(s.where, "'" + std::string(s.opcode) + ".red' is .popc.u32, .and.pred or .or.pred");
    if (!NoMoreModifiers(s) || !Need(s, 3, 4)) return false;
    in.count = static_cast<uint8_t>(counts                ? BarrierReduction::kCount
                                    : operation == ".and" ? BarrierReduction::kAll
                                                          : BarrierReduction::kAny);
    Operand& predicate = s.operands.back();
    if (predicate.negated) in.flags |= kNegated;
    predicate.negated = false;
    if (!Predicate(predicate, &in.c) || !Dest(s.operands[0], type, &in.d)) return false;
    first = 1;
    --last;
  } else {
    if (form == ".arrive") in.flags |= kOnlyArrives;
    if (!NoMoreModifiers(s) || !Need(s, form == ".arrive" ? 2 : 1, 2)) return false;
  }
  if (!Source(s.operands[first], Type::kU32, &in.a)) return false;
  if (last - first == 2) {
    in.flags |= kHasCount;
    if (!Source(s.operands[first + 1], Type::kU32, &in.b)) return false;
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
    const std::string_view mode = TakeOneOf(s, {".any", ".all"});
    if (!sync || mode.empty()) return Fail(s.where, "'match' needs .any or .all, and .sync");
    in.handler = mode == ".any" ? MatchAny(type) : MatchAll(type);
    if (in.handler == nullptr) return Unsupported(s, type);
    if (!NoMoreModifiers(s) || !Need(s, 3, 3)) return false;
    if (!Source(s.operands[1], type, &in.a) || !Source(s.operands[2], Type::kB32, &in.target) ||
        !Dest(s.operands[0], Type::kB32, &in.d))
      return false;
    const std::vector<Operand>& second = s.operands[0].elements;
    if (!second.empty() && (mode == ".any" || !Dest(second[0], Type::kPred, &in.d2)))
      return Fail(s.where, "'match.any' has one result");
  } else if (s.opcode == "elect") {
    in.handler = Elect();
    if (!sync || !NoMoreModifiers(s) || !Need(s, 2, 2)) return Fail(s.where, "'elect' needs .sync");
    if (!Source(s.operands[1], Type::kB32, &in.target)) return false;
    Operand& first = s.operands[0];
    if (first.elements.empty() || !Dest(first, Type::kB32, &in.d) || !Dest(first.elements[0], Type::kPred, &in.d2))
      return Fail(s.where, "'elect' gives a lane and a predicate: d|p");
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

const std::unordered_map<std::string_view, Body::Opcode>& Body::Decoders() {
  struct Family {
    Decoder decoder;
    std::string_view opcodes;  // with a space before and after each
  };
  static constexpr Family kFamilies[] = {
      {&Body::Arithmetic, " add sub mul mad fma div min max "},
      {&Body::Unary, " neg abs not cnot popc clz brev bfind rcp sqrt rsqrt sin cos lg2 ex2 tanh "},
      {&Body::Logic, " and or xor shl shr rem "},
      {&Body::Fields, " bfe bfi prmt shf lop3 sad "},
      {&Body::Compare_, " setp set "},
      {&Body::Selection, " selp slct "},
      {&Body::Test, " testp copysign "},
      {&Body::Mov, " mov "},
      {&Body::Cvt, " cvt "},
      {&Body::Cvta, " cvta "},
      {&Body::Isspacep, " isspacep "},
      {&Body::LoadStore, " ld ldu st "},
      {&Body::AtomicOperation, " atom red "},
      {&Body::MemoryOrder, " membar fence prefetch prefetchu discard applypriority "},
      {&Body::Branch, " bra "},
      {&Body::Leave, " ret exit trap brkpt "},
      {&Body::Barrier, " bar barrier "},
      {&Body::Together, " shfl vote match redux activemask elect "},
      {&Body::Sleeping, " nanosleep "},
      {&Body::CarryChain, " addc subc madc "},
      {&Body::Product24Bits, " mul24 mad24 "},
      {&Body::Dot, " dp4a dp2a "},
      {&Body::Search, " fns bmsk szext "},
      {&Body::MatrixMultiplyAdd, " mma "},
      {&Body::MatrixMoveMany, " ldmatrix stmatrix "},
      {&Body::CopyAsync, " cp "},
      {&Body::MemoryBarrierWord, " mbarrier "},
      {&Body::BranchIndexed, " brx "},
      {&Body::Nothing, " griddepcontrol setmaxnreg pmevent "},
      {&Body::NotSupported,
       " tex tld4 txq suld sust sured suq istypep wmma wgmma movmatrix alloca stacksave stackrestore mapa "
       "getctarank multimem tensormap tcgen05 clusterlaunchcontrol createpolicy vadd vsub vabsdiff vmin "
       "vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vmin2 vmax2 vabsdiff2 vset2 vadd4 vsub4 vavrg4 vmin4 "
       "vmax4 vabsdiff4 vset4 "},
  };
  static const auto* const table = [] {
    auto* made = new std::unordered_map<std::string_view, Opcode>;
    for (const Family& family : kFamilies) {
      std::string_view rest = family.opcodes.substr(1);
      for (size_t end; (end = rest.find(' ')) != std::string_view::npos; rest.remove_prefix(end + 1))
        made->emplace(rest.substr(0, end), Opcode{family.decoder, HasNeeds(rest.substr(0, end))});
    }
    return made;
  }();
  return *table;
}

}  // namespace mete::emulator::ptx
