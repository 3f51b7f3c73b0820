// Decoding of what moves data: mov, conversions, loads, stores, atomics.
#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {
namespace {

// Cycles until a load's value is there, in a machine with nobody else on it.
uint16_t LoadLatency(Space space) {
  switch (space) {
    case Space::kShared: return 25;
    case Space::kConst:
    case Space::kParam: return 8;
    case Space::kLocal: return 30;
    default: return 400;
  }
}

Space SpaceNamed(std::string_view name) {
  if (name == ".global") return Space::kGlobal;
  if (name == ".shared" || name == ".shared::cta") return Space::kShared;
  if (name == ".local") return Space::kLocal;
  if (name == ".const") return Space::kConst;
  if (name == ".param" || name == ".param::entry" || name == ".param::func") return Space::kParam;
  return Space::kGeneric;
}

}  // namespace

bool Body::Mov(Statement& s) {
  const Type type = TakeType(s);
  if (!NoMoreModifiers(s) || !Need(s, 2, 2)) return false;
  if (type == Type::kNone) return Fail(s.where, "'mov' has no type");
  Operand &to = s.operands[0], &from = s.operands[1];
  Instruction in;
  if (to.kind == OperandKind::kVector || from.kind == OperandKind::kVector) {
    const bool pack = from.kind == OperandKind::kVector;
    std::vector<Operand>& elements = pack ? from.elements : to.elements;
    const uint32_t count = static_cast<uint32_t>(elements.size()), bytes = count == 0 ? 0 : SizeOf(type) / count;
    in.handler = to.kind == from.kind ? nullptr : pack ? Pack(bytes, count) : Unpack(bytes, count);
    if (in.handler == nullptr || bytes * count != SizeOf(type))
      return Fail(s.where, "these elements do not fill the register");
    std::vector<uint32_t> slots(count);
    for (uint32_t i = 0; i < count; ++i) {
      if (pack ? !Source(elements[i], BitsOf(bytes), &slots[i]) : !Dest(elements[i], BitsOf(bytes), &slots[i]))
        return false;
    }
    if (pack ? !Dest(to, type, &in.d) : !Source(from, type, &in.a)) return false;
    in.target = static_cast<uint32_t>(program_->lists.size());
    program_->lists.insert(program_->lists.end(), slots.begin(), slots.end());
    Emit(s, in);
    return true;
  }
  if (type == Type::kPred) {
    in.handler = PredicateLogic("mov");
    if (!Predicate(from, &in.a) || !Dest(to, type, &in.d)) return false;
    Emit(s, in);
    return true;
  }
  in.handler = Move(SizeOf(type));
  if (in.handler == nullptr) return Unsupported(s, type);
  // mov moves bits: a float constant may go into any register of its size.
  if (!Source(from, type, &in.a, Use::kFlow) || !Dest(to, type, &in.d)) return false;
  Flow(in.d, in.a);
  NoteFact(Fact::Kind::kMove, in);
  Emit(s, in);
  return true;
}

// cvt to a pair of halves, to tf32, and cvt.pack.
bool Body::CvtSpecial(Statement& s) {
  Instruction in;
  in.latency = 8;
  if (TakeModifier(s, ".relu")) in.flags |= kRelu;
  if (TakeModifier(s, ".pack")) {
    if (!TakeModifier(s, ".sat")) return Fail(s.where, "'cvt.pack' needs .sat");
    Type types[3];
    for (Type& type : types) type = TakeType(s);  // from the last: c, a and b, result
    const bool wide = types[2] == Type::kNone;
    in.type = wide ? types[1] : types[2];
    const Type operands = wide ? types[0] : types[1];
    if (operands != Type::kS32 || SizeOf(in.type) == 0 || SizeOf(in.type) > 2 || IsFloat(in.type) || IsBits(in.type))
      return Unsupported(s, in.type);
    if (!NoMoreModifiers(s) || !Need(s, wide ? 3 : 4, wide ? 3 : 4)) return false;
    in.handler = PackSaturated();
    if (!wide && !Source(s.operands[3], Type::kB32, &in.c)) return false;
    if (!Source(s.operands[1], Type::kS32, &in.a) || !Source(s.operands[2], Type::kS32, &in.b)) return false;
    if (!Dest(s.operands[0], Type::kB32, &in.d)) return false;
    Emit(s, in);
    return true;
  }
  const bool tensor_float = TakeModifier(s, ".tf32");
  const Type from = TakeType(s), to = TakeType(s);
  const std::string_view rounding = TakeOneOf(s, {".rna", ".rn", ".rz"});
  if (from != Type::kF32 || rounding.empty() || tensor_float != (to == Type::kNone))
    return Fail(s.where, "this form of 'cvt' converts from .f32 and needs a rounding");
  if (!NoMoreModifiers(s) || !Need(s, tensor_float ? 2 : 3, tensor_float ? 2 : 3)) return false;
  if (!Source(s.operands[1], Type::kF32, &in.a)) return false;
  if (tensor_float) {
    in.handler = ConvertTensorFloat();
    in.count = rounding == ".rna" ? 0 : rounding == ".rn" ? 1 : 2;
  } else {
    if (!IsPacked(to) || rounding == ".rna") return Unsupported(s, to);
    in.handler = ConvertPair();
    in.type = to;
    const Rounding mode = rounding == ".rz" ? Rounding::kZero : Rounding::kNearest;
    in.flags = static_cast<uint8_t>(in.flags | static_cast<uint8_t>(mode) << kRoundShift);
    if (!Source(s.operands[2], Type::kF32, &in.b)) return false;
  }
  if (!Dest(s.operands[0], Type::kB32, &in.d)) return false;
  Emit(s, in);
  return true;
}

bool Body::Cvt(Statement& s) {
  for (const std::string_view modifier : s.modifiers) {
    if (modifier == ".pack" || modifier == ".tf32" || IsPacked(TypeNamed(modifier))) return CvtSpecial(s);
  }
  const Type from = TakeType(s), to = TakeType(s);
  if (IsPacked(from)) return Unsupported(s, from);
  if (to == Type::kNone || from == Type::kPred || to == Type::kPred || from == Type::kNone)
    return Fail(s.where, "'cvt' needs two types");
  uint8_t flags = 0;
  if (TakeModifier(s, ".ftz")) flags |= kFlushSubnormals;
  if (TakeModifier(s, ".sat")) flags |= kSaturate;
  if (TakeModifier(s, ".relu")) flags |= kRelu;
  const std::string_view rounding = TakeOneOf(s, {".rni", ".rzi", ".rmi", ".rpi", ".rn", ".rz", ".rm", ".rp"});
  if (!NoMoreModifiers(s) || !Need(s, 2, 2)) return false;
  Rounding mode = IsFloat(from) && !IsFloat(to) ? Rounding::kZero : Rounding::kNearest;
  if (!rounding.empty()) {
    mode = rounding[2] == 'z'   ? Rounding::kZero
           : rounding[2] == 'm' ? Rounding::kDown
           : rounding[2] == 'p' ? Rounding::kUp
                                : Rounding::kNearest;
    const bool to_integer = rounding.size() == 4;
    if (to_integer && !IsFloat(from))
      return Fail(s.where, "'" + std::string(rounding) + "' needs a floating-point source");
    if (to_integer && IsFloat(to)) flags |= kRoundToInteger;
    if (!to_integer && !IsFloat(to))
      return Fail(s.where, "'" + std::string(rounding) + "' needs a floating-point result");
  } else if (IsFloat(from) && !IsFloat(to)) {
    return Fail(s.where, "'cvt' from floating point to an integer needs a rounding such as .rzi");
  }
  flags = static_cast<uint8_t>(flags | static_cast<uint8_t>(mode) << kRoundShift);
  Instruction in;
  in.flags = flags;
  in.type = to;
  in.source_type = from;
  uint32_t from_bytes, to_bytes;
  if (!WideSource(s.operands[1], from, &in.a, &from_bytes) || !WideDest(s.operands[0], to, &in.d, &to_bytes))
    return false;
  if (IsFloat(from) && from_bytes != LaneBytes(from))
    return Fail(s.operands[1].where, "a floating-point register of exactly this type is expected");
  if (IsFloat(to) && to_bytes != LaneBytes(to))
    return Fail(s.operands[0].where, "a floating-point register of exactly this type is expected");
  in.source_bytes = static_cast<uint8_t>(from_bytes);
  in.result_bytes = static_cast<uint8_t>(to_bytes);
  in.handler = Convert(to, from, to_bytes, from_bytes, flags);
  in.latency = IsFloat(from) != IsFloat(to) || from == Type::kF64 || to == Type::kF64 ? 8 : 4;
  in.instruction_class = from == Type::kF64 || to == Type::kF64 ? kFp64 : kAlu;
  Emit(s, in);
  return true;
}

bool Body::Cvta(Statement& s) {
  const bool to_space = TakeModifier(s, ".to");
  const Type type = TakeType(s);
  if (s.modifiers.size() != 1) return Fail(s.where, "'cvta' needs a state space");
  const Space space = SpaceNamed(s.modifiers.front());
  if (space == Space::kGeneric) return Fail(s.where, "unknown state space '" + std::string(s.modifiers.front()) + "'");
  if (!Need(s, 2, 2)) return false;
  if (type != Type::kU64) return Unsupported(s, type);
  Instruction in;
  in.space = space;
  in.handler = WindowToGeneric(space, !to_space, 8);
  if (!Source(s.operands[1], type, &in.a, Use::kFlow) || !Dest(s.operands[0], type, &in.d)) return false;
  Flow(in.d, in.a);
  Emit(s, in);
  return true;
}

bool Body::Isspacep(Statement& s) {
  if (s.modifiers.size() != 1 || !Need(s, 2, 2)) return Fail(s.where, "'isspacep' needs a state space");
  Instruction in;
  in.handler = IsSpace(SpaceNamed(s.modifiers.front()));
  if (in.handler == nullptr) return Fail(s.where, "unknown state space '" + std::string(s.modifiers.front()) + "'");
  if (!Source(s.operands[1], Type::kU64, &in.a) || !Dest(s.operands[0], Type::kPred, &in.d)) return false;
  Emit(s, in);
  return true;
}

// Parameters with a constant place; those reached through a register go through the parameter window.
bool Body::Parameter_(Statement& s, bool load, Type type, uint32_t count) {
  const Operand& place = s.operands[load ? 1 : 0];
  Operand& value = s.operands[load ? 0 : 1];
  uint32_t offset;
  bool own;
  if (!ParameterPlace(place, SizeOf(type) * count, &offset, &own)) return false;
  if (offset % (SizeOf(type) * count) != 0) return Fail(place.where, "this place is not aligned for the access");
  const bool kernel = own && is_entry_;
  if (kernel && !load) return Fail(place.where, "a kernel's parameters cannot be written");
  std::vector<Operand> single = {value};
  std::vector<Operand>& elements = count > 1 ? value.elements : single;
  Instruction in;
  in.count = static_cast<uint8_t>(count);
  in.offset = offset;
  in.latency = LoadLatency(Space::kParam);
  in.instruction_class = kLoadStore;
  std::vector<uint32_t> slots(count);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t bytes;
    if (load ? !WideDest(elements[i], type, &slots[i], &bytes) : !WideSource(elements[i], type, &slots[i], &bytes))
      return false;
    const Handler handler = load ? LoadParameter(type, bytes, kernel) : StoreParameter(type, bytes);
    if (handler == nullptr || (in.handler != nullptr && in.handler != handler))
      return Fail(elements[i].where, "a register of another size is expected");
    in.handler = handler;
  }
  in.target = static_cast<uint32_t>(program_->lists.size());
  program_->lists.insert(program_->lists.end(), slots.begin(), slots.end());
  if (load && count == 1) in.d = slots[0];
  if (!load) in.b = slots[0];
  if (kernel) {
    if (count == 1 && SizeOf(type) == 8)
      parameter_loads_.emplace_back(offset, slots[0]);
    else
      for (uint32_t i = 0; i < count; ++i) value_parameters_.push_back(offset + i * SizeOf(type));
  }
  Emit(s, in);
  return true;
}

bool Body::LoadStore(Statement& s) {
  uint32_t unused;
  const bool load = s.opcode != "st";
  const Type type = TakeType(s);
  if (SizeOf(type) == 0) return Unsupported(s, type);
  const std::string_view space_name = TakeOneOf(
      s, {".global", ".shared", ".shared::cta", ".local", ".const", ".param", ".param::entry", ".param::func"});
  const Space space = SpaceNamed(space_name);
  const std::string_view vector = TakeOneOf(s, {".v2", ".v4"});
  const uint32_t count = vector.empty() ? 1 : vector == ".v2" ? 2 : 4;
  const std::string_view order = TakeOneOf(s, {".volatile", ".relaxed", ".acquire", ".release", ".mmio"});
  TakeOneOf(s, {".weak"});
  TakeOneOf(s, {".cta", ".cluster", ".gpu", ".sys"});
  TakeOneOf(s, {".ca", ".cg", ".cs", ".lu", ".cv", ".wb", ".wt"});
  TakeOneOf(s, {".nc"});
  TakeOneOf(s,
            {".L1::evict_normal", ".L1::evict_unchanged", ".L1::evict_first", ".L1::evict_last", ".L1::no_allocate"});
  TakeOneOf(s, {".L2::64B", ".L2::128B", ".L2::256B"});
  const size_t hint = TakeModifier(s, ".L2::cache_hint") ? 1 : 0;
  if (!NoMoreModifiers(s) || !Need(s, 2 + hint, 2 + hint)) return false;
  if (hint != 0 && !Source(s.operands[2], Type::kB64, &unused)) return false;
  const Operand& address = s.operands[load ? 1 : 0];
  Operand& value = s.operands[load ? 0 : 1];
  if (address.kind != OperandKind::kAddress) return Fail(address.where, "an address in brackets is expected here");
  if ((count > 1) != (value.kind == OperandKind::kVector) || (count > 1 && value.elements.size() != count)) {
    return Fail(value.where, "expected " + std::to_string(count) + (count > 1 ? " values in braces" : " value"));
  }
  if (SizeOf(type) * count > 16) return Fail(s.where, "more than 16 bytes at once");
  if (space == Space::kParam && address.base_is_name) return Parameter_(s, load, type, count);
  if (space == Space::kParam && !load) return Fail(address.where, "parameters cannot be written through a register");
  if (space == Space::kConst && !load) return Fail(s.where, "constants cannot be written");
  Instruction in;
  in.kind = Kind::kMemory;
  in.count = static_cast<uint8_t>(count);
  in.bypass = !order.empty();
  in.instruction_class = space == Space::kShared ? kShared : kLoadStore;
  in.latency = load ? LoadLatency(space) : 4;
  if (!AddressOf(address, space, &in)) return false;
  std::vector<uint32_t> slots(count);
  for (uint32_t i = 0; i < count; ++i) {
    const Operand& element = count > 1 ? value.elements[i] : value;
    uint32_t bytes;
    if (load ? !WideDest(element, type, &slots[i], &bytes) : !WideSource(element, type, &slots[i], &bytes))
      return false;
    const Handler handler = load ? Load(space, type, bytes, count > 1) : Store(space, type, bytes, count > 1);
    if (handler == nullptr || (in.handler != nullptr && in.handler != handler))
      return Fail(element.where, "a register of another size is expected");
    in.handler = handler;
  }
  if (count == 1) {
    (load ? in.d : in.b) = slots[0];
  } else {
    if (!load) in.b = slots[0], in.c = slots[1];
    in.target = static_cast<uint32_t>(program_->lists.size());
    program_->lists.insert(program_->lists.end(), slots.begin(), slots.end());
  }
  if (space == Space::kShared) program_->uses_shared = true;
  if (load && space != Space::kParam && space != Space::kConst && space != Space::kLocal)
    notes_.loads.push_back(static_cast<uint32_t>(program_->code.size()));
  Emit(s, in);
  return true;
}

bool Body::AtomicOperation(Statement& s) {
  const bool red = s.opcode == "red";
  const Type type = TakeType(s);
  const Space space = SpaceNamed(TakeOneOf(s, {".global", ".shared", ".shared::cta"}));
  TakeOneOf(s, {".relaxed", ".acquire", ".release", ".acq_rel"});
  TakeOneOf(s, {".cta", ".cluster", ".gpu", ".sys"});
  TakeModifier(s, ".noftz");
  const size_t hint = TakeModifier(s, ".L2::cache_hint") ? 1 : 0;
  const std::string_view operation =
      TakeOneOf(s, {".add", ".min", ".max", ".and", ".or", ".xor", ".exch", ".cas", ".inc", ".dec"});
  if (!NoMoreModifiers(s)) return false;
  if (operation.empty() || (red && (operation == ".exch" || operation == ".cas")))
    return Fail(s.where, "'" + std::string(s.opcode) + "' needs an operation such as .add");
  const bool swap = operation == ".cas";
  const size_t first = red ? 0 : 1, operands = first + (swap ? 3 : 2) + hint;
  if (!Need(s, operands, operands)) return false;
  uint32_t unused;
  if (hint != 0 && !Source(s.operands.back(), Type::kB64, &unused)) return false;
  Instruction in;
  in.kind = Kind::kMemory;
  in.instruction_class = kAtomic;
  in.latency = red ? 4 : space == Space::kShared ? 60 : 500;
  in.handler = Atomic(operation.substr(1), type);
  if (in.handler == nullptr) return Unsupported(s, type);
  if (!AddressOf(s.operands[first], space, &in) || !Source(s.operands[first + 1], type, &in.b)) return false;
  if (swap && !Source(s.operands[first + 2], type, &in.c)) return false;
  if (!red && !Dest(s.operands[0], type, &in.d)) return false;
  if (!red) notes_.loads.push_back(static_cast<uint32_t>(program_->code.size()));
  Emit(s, in);
  return true;
}

}  // namespace mete::emulator::ptx
