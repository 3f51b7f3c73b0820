// From operands to the slots that instructions name; and what every statement's decoding shares.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "emulator/ptx/body.h"
#include "emulator/ptx/half.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint32_t kMaximumFrame = 16u << 20;

struct SpecialRow {
  std::string_view name;
  Special special;
};
constexpr SpecialRow kSpecialRows[] = {{"%tid.x", Special::kTidX},
                                       {"%tid.y", Special::kTidY},
                                       {"%tid.z", Special::kTidZ},
                                       {"%ntid.x", Special::kNtidX},
                                       {"%ntid.y", Special::kNtidY},
                                       {"%ntid.z", Special::kNtidZ},
                                       {"%ctaid.x", Special::kCtaidX},
                                       {"%ctaid.y", Special::kCtaidY},
                                       {"%ctaid.z", Special::kCtaidZ},
                                       {"%nctaid.x", Special::kNctaidX},
                                       {"%nctaid.y", Special::kNctaidY},
                                       {"%nctaid.z", Special::kNctaidZ},
                                       {"%laneid", Special::kLaneid},
                                       {"%warpid", Special::kWarpid},
                                       {"%nwarpid", Special::kNwarpid},
                                       {"%smid", Special::kSmid},
                                       {"%nsmid", Special::kNsmid},
                                       {"%gridid", Special::kGridid},
                                       {"%lanemask_eq", Special::kLanemaskEq},
                                       {"%lanemask_le", Special::kLanemaskLe},
                                       {"%lanemask_lt", Special::kLanemaskLt},
                                       {"%lanemask_ge", Special::kLanemaskGe},
                                       {"%lanemask_gt", Special::kLanemaskGt},
                                       {"%dynamic_smem_size", Special::kDynamicSmemSize},
                                       {"%total_smem_size", Special::kTotalSmemSize},
                                       {"%aggr_smem_size", Special::kTotalSmemSize},
                                       // A cluster is one block.
                                       {"%clusterid.x", Special::kCtaidX},
                                       {"%clusterid.y", Special::kCtaidY},
                                       {"%clusterid.z", Special::kCtaidZ},
                                       {"%nclusterid.x", Special::kNctaidX},
                                       {"%nclusterid.y", Special::kNctaidY},
                                       {"%nclusterid.z", Special::kNctaidZ},
                                       {"%cluster_ctaid.x", Special::kZero},
                                       {"%cluster_ctaid.y", Special::kZero},
                                       {"%cluster_ctaid.z", Special::kZero},
                                       {"%cluster_nctaid.x", Special::kOne},
                                       {"%cluster_nctaid.y", Special::kOne},
                                       {"%cluster_nctaid.z", Special::kOne},
                                       {"%cluster_ctarank", Special::kZero},
                                       {"%cluster_nctarank", Special::kOne}};
constexpr std::string_view kClocks[] = {"%clock64",  "%globaltimer",    "%clock",
                                        "%clock_hi", "%globaltimer_lo", "%globaltimer_hi"};
// %envreg0 … 31: what a runtime would hand to the kernel. None does.
bool IsEnvironment(std::string_view name) {
  return name.substr(0, 7) == "%envreg" && name.size() > 7 && name.size() < 10 &&
         name.find_first_not_of("0123456789", 7) == std::string_view::npos;
}

}  // namespace

bool Body::IsSpecial(std::string_view name) {
  if (name.empty() || name[0] != '%') return false;
  for (const SpecialRow& row : kSpecialRows) {
    if (row.name.substr(0, row.name.find('.')) == name) return true;
  }
  return std::find(std::begin(kClocks), std::end(kClocks), name) != std::end(kClocks) || IsEnvironment(name);
}

uint32_t Body::AllocateSlot(uint32_t lane_bytes) {
  const uint32_t slot = program_->frame_bytes;
  if (slot > kMaximumFrame) {
    Fail(parser_->Peek(), "function '" + std::string(name_.text) + "' names more registers than 16 MiB a warp");
    return kTrashSlot;
  }
  program_->frame_bytes += lane_bytes == 0 ? kSlotBytes : lane_bytes * kLanes;
  slot_bytes_[slot] = lane_bytes;
  return slot;
}

uint32_t Body::ConstantSlot(ConstantKind kind, uint32_t bytes, uint32_t index, uint64_t value) {
  const auto key = std::make_tuple(static_cast<uint8_t>(kind), bytes, index, value);
  const auto known = constant_slots_.find(key);
  if (known != constant_slots_.end()) return known->second;
  const uint32_t slot = AllocateSlot(bytes);
  program_->constants.push_back({slot, static_cast<uint8_t>(bytes), kind, index, value});
  constant_slots_.emplace(key, slot);
  return slot;
}

void Body::Touch(uint32_t slot) {
  const uint32_t at = static_cast<uint32_t>(program_->code.size());
  const auto [it, fresh] = intervals_.emplace(slot, Interval{at, at, 0});
  if (!fresh) it->second.last = at;
  notes_.reads.emplace_back(at, slot);
}

void Body::NoteWrite(uint32_t slot) { notes_.writes.emplace_back(static_cast<uint32_t>(program_->code.size()), slot); }

// The instruction is about to be emitted. Guarded or not: the reader of the notes looks.
void Body::NoteFact(Fact::Kind kind, const Instruction& in, Compare compare, Type type) {
  notes_.facts.push_back(
      {kind, static_cast<uint32_t>(program_->code.size()), in.d, in.a, in.b, static_cast<uint8_t>(compare), type});
}

void Body::Flow(uint32_t to, uint32_t from) { flows_.emplace(from, to); }

uint64_t Body::ImmediateBits(const Operand& o, Type type, bool* ok) {
  *ok = true;
  const ConstantValue& c = o.constant;
  if (!IsFloat(type)) {
    if (c.kind == TokenKind::kInteger || (IsBits(type) && ((c.kind == TokenKind::kFloat32 && SizeOf(type) == 4) ||
                                                           (c.kind == TokenKind::kFloat && SizeOf(type) == 8)))) {
      return c.bits;
    }
    *ok = false;
    Fail(o.where, "an integer is expected here");
    return 0;
  }
  double real = 0;
  if (c.kind == TokenKind::kFloat) {
    std::memcpy(&real, &c.bits, sizeof real);
  } else if (c.kind == TokenKind::kFloat32) {
    if (type == Type::kF32) return c.bits;
    float single;
    const uint32_t bits = static_cast<uint32_t>(c.bits);
    std::memcpy(&single, &bits, sizeof single);
    real = single;
  } else {
    *ok = false;
    Fail(o.where, "a floating-point constant is expected here");
    return 0;
  }
  uint64_t bits = 0;
  if (type == Type::kF64) {
    std::memcpy(&bits, &real, sizeof real);
  } else if (type == Type::kF32) {
    const float single = static_cast<float>(real);
    std::memcpy(&bits, &single, sizeof single);
  } else {
    bits = type == Type::kBF16 ? BrainOfDouble(real) : HalfOfDouble(real);
  }
  return bits;
}

bool Body::VariableSlot(const Operand& o, uint32_t bytes, uint32_t* slot) {
  const uint64_t addend = o.constant.bits;
  if (const Name* name = Find(o.name)) {
    switch (name->kind) {
      case Name::Kind::kShared:
        program_->shared_used.push_back(name->index);
        *slot = ConstantSlot(ConstantKind::kShared, bytes, name->index, addend);
        return true;
      case Name::Kind::kLocal: *slot = ConstantSlot(ConstantKind::kLocal, bytes, 0, name->index + addend); return true;
      case Name::Kind::kParameter:
        if (!is_entry_ || !name->own) {
          *slot = ConstantSlot(ConstantKind::kArea, bytes, 0, name->index + addend);
          return bytes == 8 || Fail(o.where, "the address of '" + o.name + "' needs a 64-bit register");
        }
        value_parameters_.push_back(name->index);
        *slot = ConstantSlot(ConstantKind::kValue, bytes, 0, name->index + addend);
        return true;
      default: break;
    }
  }
  const auto shared = parser_->shared_names().find(o.name);
  if (shared != parser_->shared_names().end()) {
    program_->shared_used.push_back(shared->second);
    *slot = ConstantSlot(ConstantKind::kShared, bytes, shared->second, addend);
    return true;
  }
  const auto global = parser_->global_names().find(o.name);
  if (global != parser_->global_names().end()) {
    if (bytes != 8) return Fail(o.where, "the address of '" + o.name + "' needs a 64-bit register");
    *slot = ConstantSlot(ConstantKind::kGlobal, bytes, global->second, addend);
    return true;
  }
  if (parser_->IsExternVariable(o.name)) return Fail(o.where, "unresolved extern variable '" + o.name + "'");
  const auto function = parser_->function_names().find(o.name);
  if (function != parser_->function_names().end()) {
    if (bytes != 8 || addend != 0 || parser_->module().functions()[function->second].is_entry)
      return Fail(o.where, "the address of '" + o.name + "' cannot be taken here");
    parser_->NoteAddress(function->second, o.where);
    *slot = ConstantSlot(ConstantKind::kValue, bytes, 0, FunctionAddress(function->second));
    return true;
  }
  return Fail(o.where, "unknown name '" + o.name + "'");
}

bool Body::SpecialSlot(const Operand& o, Type type, uint32_t* slot) {
  const uint32_t bytes = LaneBytes(type);
  if (bytes == 0 || IsFloat(type)) return Fail(o.where, "'" + o.name + "' is an integer");
  if (IsEnvironment(o.name)) {
    *slot = ConstantSlot(ConstantKind::kSpecial, bytes, static_cast<uint32_t>(Special::kZero), 0);
    return true;
  }
  for (const SpecialRow& row : kSpecialRows) {
    if (row.name != o.name) continue;
    *slot = ConstantSlot(ConstantKind::kSpecial, bytes, static_cast<uint32_t>(row.special), 0);
    return true;
  }
  // Clocks are read anew each time.
  Instruction in;
  in.latency = 20;
  in.line = static_cast<uint32_t>(o.where.line);
  if (o.name == "%clock64" || o.name == "%globaltimer") {
    if (bytes != 8) return Fail(o.where, "'" + o.name + "' needs a 64-bit register");
  } else if (o.name == "%clock" || o.name == "%clock_hi" || o.name == "%globaltimer_lo" ||
             o.name == "%globaltimer_hi") {
    if (bytes != 4) return Fail(o.where, "'" + o.name + "' needs a 32-bit register");
    in.flags = o.name.back() == 'i' ? 1 : 0;
  } else {
    return Fail(o.where, "unknown special register '" + o.name + "'");
  }
  in.handler = ClockRead(bytes, o.name[1] == 'g');
  in.d = AllocateSlot(bytes);
  NoteWrite(in.d);
  program_->code.push_back(in);
  *slot = in.d;
  return true;
}

bool Body::Source(const Operand& o, Type type, uint32_t* slot, Use use) {
  const uint32_t bytes = LaneBytes(type);
  if (!o.elements.empty() && o.kind != OperandKind::kVector) return Fail(o.where, "'|' has no place here");
  switch (o.kind) {
    case OperandKind::kRegister:
      if (LaneBytes(o.type) != bytes || (o.type == Type::kPred) != (type == Type::kPred)) {
        return Fail(o.where, "register '" + o.name + "' is not of the instruction's size");
      }
      if (o.negated) return Predicate(o, slot);
      *slot = o.slot;
      Touch(o.slot);
      if (use == Use::kValue) value_used_[o.slot] = true;
      return true;
    case OperandKind::kConstant: {
      if (type == Type::kPred) {
        *slot = ConstantSlot(ConstantKind::kPredicate, 0, 0, o.constant.bits != 0 ? 1 : 0);
        return true;
      }
      bool good;
      uint64_t bits = ImmediateBits(o, type, &good);
      if (bytes < 8) bits &= (uint64_t{1} << bytes * 8) - 1;
      *slot = ConstantSlot(ConstantKind::kValue, bytes, 0, bits);
      return good;
    }
    case OperandKind::kName: return VariableSlot(o, bytes, slot);
    case OperandKind::kSpecial: return SpecialSlot(o, type, slot);
    default: return Fail(o.where, "a register or a constant is expected here");
  }
}

bool Body::WideSource(const Operand& o, Type type, uint32_t* slot, uint32_t* bytes) {
  if (o.kind != OperandKind::kRegister) {
    *bytes = LaneBytes(type);
    return Source(o, type, slot);
  }
  *bytes = LaneBytes(o.type);
  if (o.type == Type::kPred || *bytes < LaneBytes(type)) return Fail(o.where, "register '" + o.name + "' is too small");
  *slot = o.slot;
  Touch(o.slot);
  value_used_[o.slot] = true;
  return true;
}

bool Body::Dest(const Operand& o, Type type, uint32_t* slot) {
  if (o.kind == OperandKind::kSink) {
    *slot = kTrashSlot;
    return true;
  }
  if (o.kind != OperandKind::kRegister || o.negated) return Fail(o.where, "a register is expected here");
  if (LaneBytes(o.type) != LaneBytes(type) || (o.type == Type::kPred) != (type == Type::kPred)) {
    return Fail(o.where, "register '" + o.name + "' is not of the instruction's size");
  }
  *slot = o.slot;
  Touch(o.slot);
  NoteWrite(o.slot);
  return true;
}

bool Body::WideDest(const Operand& o, Type type, uint32_t* slot, uint32_t* bytes) {
  if (o.kind == OperandKind::kSink) {
    *slot = kTrashSlot;
    *bytes = LaneBytes(type);
    return true;
  }
  if (o.kind != OperandKind::kRegister || o.type == Type::kPred) return Fail(o.where, "a register is expected here");
  *bytes = LaneBytes(o.type);
  if (*bytes < LaneBytes(type)) return Fail(o.where, "register '" + o.name + "' is too small");
  *slot = o.slot;
  Touch(o.slot);
  NoteWrite(o.slot);
  return true;
}

bool Body::Predicate(const Operand& o, uint32_t* slot) {
  if (o.kind == OperandKind::kConstant) return Source(o, Type::kPred, slot);
  if (o.kind != OperandKind::kRegister || o.type != Type::kPred) return Fail(o.where, "a predicate is expected here");
  Touch(o.slot);
  *slot = o.slot;
  if (!o.negated) return true;
  Instruction in;
  in.handler = PredicateLogic("not");
  in.line = static_cast<uint32_t>(o.where.line);
  in.a = o.slot;
  in.d = *slot = AllocateSlot(0);
  NoteWrite(in.d);
  program_->code.push_back(in);
  Touch(in.d);
  return true;
}

bool Body::AddressOf(const Operand& o, Space space, Instruction* in) {
  if (o.kind != OperandKind::kAddress) return Fail(o.where, "an address in brackets is expected here");
  in->space = space;
  if (o.base_is_register) {
    const uint32_t bytes = LaneBytes(o.type);
    if (bytes != 8 && bytes != 4) return Fail(o.where, "an address register has 32 or 64 bits");
    if (bytes == 4 && (space == Space::kGeneric || space == Space::kGlobal || space == Space::kConst)) {
      return Fail(o.where, "an address of this space needs a 64-bit register");
    }
    in->a = o.slot;
    in->wide_address = bytes == 8;
    in->offset = static_cast<int64_t>(o.constant.bits);
    Touch(o.slot);
    return true;
  }
  if (o.base_is_name) {
    if (!VariableSlot(o, 8, &in->a)) return false;
    if (space == Space::kGeneric) {  // a variable of a window named without its space
      const Name* name = Find(o.name);
      const bool shared =
          (name != nullptr && name->kind == Name::Kind::kShared) || parser_->shared_names().count(o.name) != 0;
      if (shared)
        in->offset = static_cast<int64_t>(kSharedWindow);
      else if (name != nullptr && name->kind == Name::Kind::kLocal)
        in->offset = static_cast<int64_t>(kLocalWindow);
      else if (name != nullptr)
        in->offset = static_cast<int64_t>(kParamWindow);
    }
    return true;
  }
  in->a = ConstantSlot(ConstantKind::kValue, 8, 0, o.constant.bits);
  return true;
}

// A .param variable with a constant offset: its place in the kernel's parameters (own of an entry) or the lane's area.
bool Body::ParameterPlace(const Operand& o, uint32_t bytes, uint32_t* offset, bool* own) {
  const Name* name = Find(o.name);
  if (name == nullptr || name->kind != Name::Kind::kParameter)
    return Fail(o.where, "'" + o.name + "' is not a parameter");
  const uint64_t displacement = o.constant.bits;
  if (displacement > name->bytes || name->bytes - displacement < bytes)
    return Fail(o.where, "outside of parameter '" + o.name + "'");
  *offset = name->index + static_cast<uint32_t>(displacement);
  *own = name->own;
  return true;
}

bool Body::TakeModifier(Statement& s, std::string_view modifier) {
  const auto found = std::find(s.modifiers.begin(), s.modifiers.end(), modifier);
  if (found == s.modifiers.end()) return false;
  s.modifiers.erase(found);
  return true;
}

Type Body::TakeType(Statement& s) {
  for (size_t i = s.modifiers.size(); i-- > 0;) {
    const Type type = TypeNamed(s.modifiers[i]);
    if (type == Type::kNone) continue;
    s.modifiers.erase(s.modifiers.begin() + static_cast<std::ptrdiff_t>(i));
    return type;
  }
  return Type::kNone;
}

std::string_view Body::TakeOneOf(Statement& s, std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers)
    if (TakeModifier(s, modifier)) return modifier;
  return {};
}

bool Body::Need(const Statement& s, size_t least, size_t most) {
  if (s.operands.size() >= least && s.operands.size() <= most) return true;
  return Fail(s.where, "'" + std::string(s.opcode) + "' takes " + std::to_string(least) +
                           (most != least ? " to " + std::to_string(most) : "") + " operands, found " +
                           std::to_string(s.operands.size()));
}

bool Body::NoMoreModifiers(const Statement& s) {
  if (s.modifiers.empty()) return true;
  return Fail(s.where, "'" + std::string(s.opcode) + "' does not take '" + std::string(s.modifiers.front()) + "'");
}

bool Body::Unsupported(const Statement& s, Type type) {
  return Fail(s.where,
              "'" + std::string(s.opcode) + "' does not work on " + std::string(kTypeNames[static_cast<size_t>(type)]));
}

Instruction& Body::Emit(const Statement& s, Instruction in) {
  in.guard = s.guard;
  in.guard_negated = s.guard_negated;
  in.line = static_cast<uint32_t>(s.where.line);
  program_->code.push_back(in);
  return program_->code.back();
}

// Rounding, .ftz, .sat and .approx of a floating-point statement.
bool Body::FloatFlags(Statement& s, uint8_t* flags, bool* approximate) {
  *flags = 0;
  const bool approx = TakeModifier(s, ".approx"), full = TakeModifier(s, ".full");
  *approximate = approx || full;
  if (TakeModifier(s, ".ftz")) *flags |= kFlushSubnormals;
  if (TakeModifier(s, ".sat")) *flags |= kSaturate;
  if (s.opcode == "fma" && TakeModifier(s, ".relu")) *flags |= kRelu;
  if ((s.opcode == "min" || s.opcode == "max") && TakeModifier(s, ".NaN")) *flags |= kPropagateNan;
  const std::string_view rounding = TakeOneOf(s, {".rn", ".rz", ".rm", ".rp"});
  const Rounding mode = rounding == ".rz"   ? Rounding::kZero
                        : rounding == ".rm" ? Rounding::kDown
                        : rounding == ".rp" ? Rounding::kUp
                                            : Rounding::kNearest;
  *flags |= static_cast<uint8_t>(static_cast<uint8_t>(mode) << kRoundShift);
  return NoMoreModifiers(s);
}

}  // namespace mete::emulator::ptx
