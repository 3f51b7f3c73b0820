#include "emulator/ptx/body.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace mete::emulator::ptx {
namespace {

constexpr uint64_t kMaximumLocal = 512 * 1024;
constexpr size_t kMaximumCode = 4'000'000, kMaximumModifiers = 24;

}  // namespace

Body::Body(Parser* parser, uint32_t function, Token name) : parser_(parser), function_(function), name_(name) {}

bool Body::DeclareName(const Token& where, Name name) {
  if (!scopes_.back().names.emplace(std::string(where.text), name).second) {
    return Fail(where, "'" + std::string(where.text) + "' is declared twice");
  }
  return true;
}

// The innermost declaration; a member of %r<9> gets an entry of its own when it is first named.
Body::Name* Body::Find(const std::string& name) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  const bool numbered =
      digits < name.size() && name.size() - digits <= 9 && (name[digits] != '0' || name.size() - digits == 1);
  for (size_t i = scopes_.size(); i-- > 0;) {
    Scope& scope = scopes_[i];
    const auto exact = scope.names.find(name);
    if (exact != scope.names.end()) return &exact->second;
    if (!numbered) continue;
    const auto range = scope.ranges.find(name.substr(0, digits));
    if (range == scope.ranges.end() || std::stoul(name.substr(digits)) >= range->second.count) continue;
    Name member;
    member.type = range->second.type;
    return &scope.names.emplace(name, member).first->second;
  }
  return nullptr;
}

bool Body::DeclareRegisters() {
  Type shared_type = Type::kNone;
  do {
    Declaration d;
    if (shared_type == Type::kNone) {
      if (!parser_->Declare(&d, false)) return false;
      shared_type = d.type;
    } else {
      if (!parser_->TakeName(&d.name, "a register")) return false;
      if (parser_->TakeIf("<")) {
        ConstantValue value;
        if (!parser_->ConstantExpression(&value) || !parser_->Expect(">")) return false;
        d.count = static_cast<uint32_t>(std::min<uint64_t>(value.bits, 1u << 24));
      }
    }
    if (d.is_array) return Fail(d.name, "registers are not arrays");
    if (d.count != 0) {
      if (!scopes_.back().ranges.emplace(std::string(d.name.text), Range{shared_type, d.count}).second) {
        return Fail(d.name, "'" + std::string(d.name.text) + "' is declared twice");
      }
      continue;
    }
    Name name;
    name.type = shared_type;
    if (!DeclareName(d.name, name)) return false;
  } while (parser_->TakeIf(","));
  return parser_->Expect(";");
}

bool Body::DeclareVariables(Space space) {
  do {
    Declaration d;
    if (!parser_->Declare(&d, false)) return false;
    if (d.type == Type::kPred || d.count != 0) return Fail(d.name, "not a variable of memory");
    Name name;
    name.type = d.type;
    name.bytes = static_cast<uint32_t>(std::min<uint64_t>(d.bytes, ~0u));
    if (space == Space::kShared) {
      if (d.unsized || d.bytes > 232448)
        return Fail(d.name, "'" + std::string(d.name.text) + "' is larger than a block's shared memory");
      name.kind = Name::Kind::kShared;
      name.index = parser_->AddShared(d, false);
      program_->shared_used.push_back(name.index);  // it is the function's, named or not
    } else if (space == Space::kLocal) {
      name.kind = Name::Kind::kLocal;
      local_bytes_ = (local_bytes_ + d.alignment - 1) / d.alignment * d.alignment;
      name.index = static_cast<uint32_t>(local_bytes_);
      if (d.bytes > kMaximumLocal || local_bytes_ + d.bytes > kMaximumLocal)
        return Fail(d.name, "more than 512 KiB of local memory per thread");
      local_bytes_ += d.bytes;
    } else {
      name.kind = Name::Kind::kParameter;
      area_bytes_ = (area_bytes_ + d.alignment - 1) / d.alignment * d.alignment;
      name.index = area_bytes_;
      if (d.bytes == 0 || area_bytes_ + d.bytes > kMaximumArea)
        return Fail(d.name, "parameters of calls need more than 64 KiB");
      area_bytes_ += static_cast<uint32_t>(d.bytes);
    }
    if (!DeclareName(d.name, name)) return false;
  } while (parser_->TakeIf(","));
  return parser_->Expect(";");
}

bool Body::ParseOperand(Operand* o) {
  if (++depth_ > kMaximumNesting) return Fail(parser_->Peek(), "operands nested too deeply");
  struct Leave_ {
    int* depth;
    ~Leave_() { --*depth; }
  } leave{&depth_};
  o->where = parser_->Peek();
  if (parser_->TakeIf("[")) {
    o->kind = OperandKind::kAddress;
    Operand base;
    base.where = parser_->Peek();
    if (parser_->Peek().kind == TokenKind::kIdentifier) {
      const Token name = parser_->Take();
      o->name = std::string(name.text);
      Name* found = Find(o->name);
      if (found != nullptr && found->kind == Name::Kind::kRegister) {
        o->base_is_register = true;
        o->type = found->type;
        if (found->slot == 0) found->slot = AllocateSlot(LaneBytes(found->type));
        o->slot = found->slot;
      } else {
        o->base_is_name = true;
      }
      if (parser_->TakeIf("+")) {
        if (!parser_->ConstantExpression(&o->constant, 5)) return false;
      } else if (parser_->Peek().Is("-")) {
        if (!parser_->ConstantExpression(&o->constant, 5)) return false;
      }
    } else if (!parser_->ConstantExpression(&o->constant)) {
      return false;
    }
    if (o->constant.kind != TokenKind::kInteger) return Fail(o->where, "an address needs an integer");
    return parser_->Expect("]");
  }
  if (parser_->TakeIf("{")) {
    o->kind = OperandKind::kVector;
    do {
      Operand element;
      if (!ParseOperand(&element)) return false;
      if (element.kind == OperandKind::kVector || element.kind == OperandKind::kAddress)
        return Fail(element.where, "a vector holds registers or constants");
      o->elements.push_back(std::move(element));
    } while (parser_->TakeIf(","));
    return parser_->Expect("}");
  }
  if (parser_->Peek().Is("!")) {
    parser_->Take();
    if (!ParseOperand(o)) return false;
    if (o->kind != OperandKind::kRegister || o->type != Type::kPred) return Fail(o->where, "'!' needs a predicate");
    o->negated = !o->negated;
    return true;
  }
  if (parser_->Peek().kind != TokenKind::kIdentifier) {
    o->kind = OperandKind::kConstant;
    return parser_->ConstantExpression(&o->constant);
  }
  const Token token = parser_->Take();
  o->name = std::string(token.text);
  if (o->name == "_") {
    o->kind = OperandKind::kSink;
  } else if (o->name == "WARP_SZ") {
    o->kind = OperandKind::kConstant;
    o->constant.bits = kLanes;
  } else if (Name* found = Find(o->name); found != nullptr && found->kind == Name::Kind::kRegister) {
    o->kind = OperandKind::kRegister;
    o->type = found->type;
    if (found->slot == 0) found->slot = AllocateSlot(LaneBytes(found->type));
    o->slot = found->slot;
  } else if (IsSpecial(token.text)) {
    o->kind = OperandKind::kSpecial;
    if (parser_->Peek().kind == TokenKind::kDirective) o->name += std::string(parser_->Take().text);
  } else if (token.text[0] == '%') {
    return Fail(token, "unknown register '" + o->name + "'");
  } else {
    o->kind = OperandKind::kName;
    if (parser_->TakeIf("+")) {
      if (!parser_->ConstantExpression(&o->constant, 5)) return false;
    } else if (parser_->Peek().Is("-")) {
      if (!parser_->ConstantExpression(&o->constant, 5)) return false;
    }
  }
  if (parser_->TakeIf("|")) {
    Operand second;
    if (!ParseOperand(&second)) return false;
    o->elements.push_back(std::move(second));
  }
  return !parser_->failed();
}

bool Body::ParseStatement() {
  Statement s;
  s.where = parser_->Peek();
  if (parser_->TakeIf("@")) {
    Operand guard;
    if (!ParseOperand(&guard)) return false;
    if (guard.kind != OperandKind::kRegister || guard.type != Type::kPred)
      return Fail(guard.where, "a guard is a predicate");
    s.guard = guard.slot;
    s.guard_negated = guard.negated;
    Touch(guard.slot);
  }
  Token opcode;
  if (!parser_->TakeName(&opcode, "an instruction")) return false;
  if (s.guard == kZeroSlot && parser_->TakeIf(":")) {
    const Token& next = parser_->Peek();
    if (next.Is(".callprototype") || next.Is(".calltargets") || next.Is(".branchtargets")) return LabelledTable(opcode);
    if (!labels_.emplace(std::string(opcode.text), static_cast<uint32_t>(program_->code.size())).second) {
      return Fail(opcode, "label '" + std::string(opcode.text) + "' stands twice");
    }
    return true;
  }
  s.where = opcode;
  s.opcode = opcode.text;
  while (parser_->Peek().kind == TokenKind::kDirective) {
    s.modifiers.push_back(parser_->Take().text);
    if (s.modifiers.size() > kMaximumModifiers) return Fail(opcode, "too many modifiers");
  }
  if (program_->code.size() > kMaximumCode) return Fail(opcode, "function too long");
  if (s.opcode == "call") return ParseCall(&s);
  const auto decoder = Decoders().find(s.opcode);
  if (decoder == Decoders().end()) return Fail(opcode, "unknown opcode '" + std::string(s.opcode) + "'");
  if (decoder->second.decode == &Body::NotSupported) return NotSupported(s);
  if (decoder->second.has_needs && !TargetHas(s)) return false;
  if (!parser_->Peek().Is(";")) {
    do {
      Operand o;
      if (!ParseOperand(&o)) return false;
      s.operands.push_back(std::move(o));
    } while (parser_->TakeIf(","));
  }
  if (!parser_->Expect(";")) return false;
  return (this->*decoder->second.decode)(s);
}

bool Body::Block() {
  if (++depth_ > kMaximumNesting) return Fail(parser_->Peek(), "blocks nested too deeply");
  if (!parser_->Expect("{")) return false;
  scopes_.emplace_back();
  while (!parser_->TakeIf("}")) {
    const Token& at = parser_->Peek();
    bool good = true;
    if (parser_->failed()) return false;
    if (at.kind == TokenKind::kEnd) return Fail(at, "function '" + std::string(name_.text) + "' has no end");
    if (at.Is("{"))
      good = Block();
    else if (parser_->TakeIf(".reg"))
      good = DeclareRegisters();
    else if (parser_->TakeIf(".param"))
      good = DeclareVariables(Space::kParam);
    else if (parser_->TakeIf(".local"))
      good = DeclareVariables(Space::kLocal);
    else if (parser_->TakeIf(".shared"))
      good = DeclareVariables(Space::kShared);
    else if (at.Is(".loc") || at.Is(".file") || at.Is(".pragma"))
      good = parser_->SkipDebugDirective();
    else if (parser_->TakeIf(";"))
      good = true;
    else if (at.kind == TokenKind::kDirective)
      good = Fail(at, "unknown directive '" + std::string(at.text) + "'");
    else
      good = ParseStatement();
    if (!good || parser_->failed()) return false;
  }
  scopes_.pop_back();
  --depth_;
  return true;
}

bool Body::Parse(Function* function) {
  program_ = std::make_shared<Program>();
  is_entry_ = function->is_entry;
  scopes_.emplace_back();
  const Signature& signature = parser_->signature(function_);
  area_bytes_ = is_entry_ ? 0 : (signature.area_bytes + 15) / 16 * 16;
  program_->shape = ShapeOf(signature);
  if (!DeclareSignature()) return false;
  return Block() && Finish(function);
}

// Own parameters: .param ones are places in the area (or, of an entry, in the launch's buffer), .reg ones are registers
// that are loaded from there first of all, and stored there by every return.
bool Body::DeclareSignature() {
  const Signature& signature = parser_->signature(function_);
  Statement entry;
  entry.where = name_;
  const auto declare = [&](const std::vector<Parameter>& parameters, const std::vector<Type>& registers, bool load) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& p = parameters[i];
      Name name;
      if (registers[i] == Type::kNone) {
        name.kind = Name::Kind::kParameter;
        name.index = p.offset;
        name.bytes = p.size;
        name.own = true;
      } else {
        name.type = registers[i];
        name.slot = AllocateSlot(LaneBytes(name.type));
        if (load) MoveInArea(entry, true, name.type, p.offset, name.slot, LaneBytes(name.type));
      }
      if (!load) return_slots_.push_back(registers[i] == Type::kNone ? kZeroSlot : name.slot);
      scopes_.back().names[p.name] = name;
    }
  };
  declare(signature.arguments, signature.argument_registers, true);
  declare(signature.returns, signature.return_registers, false);
  return !parser_->failed();
}

bool Body::Finish(Function* function) {
  Statement fall;
  fall.where = parser_->Peek();
  StoreReturns(fall);
  Instruction end;  // control that falls off the end returns
  end.kind = Kind::kReturn;
  end.instruction_class = kControl;
  end.line = static_cast<uint32_t>(parser_->Peek().line);
  program_->code.push_back(end);
  std::vector<std::pair<uint32_t, uint32_t>> loops;
  if (!ResolveLabels(&loops)) return false;
  program_->local_bytes = static_cast<uint32_t>((local_bytes_ + 15) / 16 * 16);
  program_->area_bytes = area_bytes_;
  std::vector<SlotInterval> intervals;
  for (const auto& [slot, interval] : intervals_)
    intervals.push_back({interval.first, interval.last, slot_bytes_[slot]});
  if (is_entry_ || !loops.empty()) FindCountedLoops(program_.get(), notes_, slot_bytes_);
  program_->steered_by_memory = SteeredByMemory(*program_, notes_);
  function->registers = EstimateRegisters(std::move(intervals), loops);
  SetFlags(function);
  function->program = program_;
  return true;
}

// Which parameters serve as addresses only: follow what each was loaded into until a use that is not an address.
void Body::SetFlags(Function* function) {
  std::vector<Parameter>& parameters = function->parameters;
  const auto index_of = [&](uint32_t offset) {
    const auto after = std::upper_bound(parameters.begin(), parameters.end(), offset,
                                        [](uint32_t at, const Parameter& p) { return at < p.offset; });
    return after - parameters.begin() - 1;
  };
  for (Parameter& p : parameters) p.address_only = p.size == 8;
  if (parameters.empty()) return;
  for (const uint32_t offset : value_parameters_) {
    if (index_of(offset) >= 0) parameters[static_cast<size_t>(index_of(offset))].address_only = false;
  }
  // Registers from which a value use can be reached: backwards from those uses.
  std::unordered_multimap<uint32_t, uint32_t> sources;
  for (const auto& [from, to] : flows_) sources.emplace(to, from);
  std::unordered_set<uint32_t> values;
  std::vector<uint32_t> open;
  for (const auto& [slot, used] : value_used_) {
    if (used && values.insert(slot).second) open.push_back(slot);
  }
  while (!open.empty()) {
    const auto [begin, end] = sources.equal_range(open.back());
    open.pop_back();
    for (auto it = begin; it != end; ++it) {
      if (values.insert(it->second).second) open.push_back(it->second);
    }
  }
  for (const auto& [offset, slot] : parameter_loads_) {
    if (index_of(offset) >= 0 && values.count(slot) != 0)
      parameters[static_cast<size_t>(index_of(offset))].address_only = false;
  }
}

}  // namespace mete::emulator::ptx
