#include "emulator/ptx/body.h"

#include <algorithm>
#include <utility>

namespace mete::emulator::ptx {
namespace {

constexpr int kMaximumDepth = 64;
constexpr uint64_t kMaximumLocal = 512 * 1024;
constexpr uint32_t kMaximumArea = 64 * 1024;
constexpr size_t kMaximumCode = 4'000'000;

bool IsSpecialName(std::string_view name) {
  static constexpr std::string_view kNames[] = {"%tid",
                                                "%ntid",
                                                "%ctaid",
                                                "%nctaid",
                                                "%laneid",
                                                "%warpid",
                                                "%nwarpid",
                                                "%smid",
                                                "%nsmid",
                                                "%gridid",
                                                "%clock",
                                                "%clock_hi",
                                                "%clock64",
                                                "%globaltimer",
                                                "%globaltimer_lo",
                                                "%globaltimer_hi",
                                                "%lanemask_eq",
                                                "%lanemask_le",
                                                "%lanemask_lt",
                                                "%lanemask_ge",
                                                "%lanemask_gt",
                                                "%dynamic_smem_size",
                                                "%total_smem_size"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

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
  if (++depth_ > kMaximumDepth) return Fail(parser_->Peek(), "operands nested too deeply");
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
  } else if (IsSpecialName(token.text)) {
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

// call{.uni} (results), function, (arguments);
bool Body::ParseCall(Statement* s) {
  TakeModifier(*s, ".uni");
  if (!NoMoreModifiers(*s)) return false;
  const auto list = [&](std::vector<Operand>* into) {
    if (!parser_->Expect("(")) return false;
    if (parser_->TakeIf(")")) return true;
    do {
      Operand o;
      if (!ParseOperand(&o)) return false;
      into->push_back(std::move(o));
    } while (parser_->TakeIf(","));
    return parser_->Expect(")");
  };
  std::vector<Operand> results, arguments;
  if (parser_->Peek().Is("(")) {
    if (!list(&results) || !parser_->Expect(",")) return false;
  }
  Token name;
  if (!parser_->TakeName(&name, "the function to call")) return false;
  if (Find(std::string(name.text)) != nullptr) return Fail(name, "calls through a register are not supported");
  if (parser_->TakeIf(",")) {
    if (!list(&arguments)) return false;
    if (parser_->TakeIf(",")) return Fail(name, "calls through a prototype are not supported");
  }
  const auto function = parser_->function_names().find(std::string(name.text));
  if (function == parser_->function_names().end())
    return Fail(name, "unresolved extern function '" + std::string(name.text) + "'");
  const Signature& signature = parser_->signature(function->second);
  if (parser_->module().functions()[function->second].is_entry) return Fail(name, "a kernel cannot be called");
  if (results.size() != signature.returns.size() || arguments.size() != signature.arguments.size()) {
    return Fail(name, "'" + std::string(name.text) + "' takes " + std::to_string(signature.arguments.size()) +
                          " arguments and gives " + std::to_string(signature.returns.size()) + " results");
  }
  parser_->NoteCall(function->second, name);
  Call call;
  call.function = function->second;
  const auto copies = [&](const std::vector<Operand>& operands, const std::vector<Parameter>& parameters, bool in,
                          std::vector<CallCopy>* out) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const Name* place = Find(operands[i].name);
      if (place == nullptr || place->kind != Name::Kind::kParameter || place->own)
        return Fail(operands[i].where, "expected a .param variable of this function");
      if (place->bytes < parameters[i].size)
        return Fail(operands[i].where, "this .param variable is smaller than the callee's");
      out->push_back(in ? CallCopy{place->index, parameters[i].offset, parameters[i].size}
                        : CallCopy{parameters[i].offset, place->index, parameters[i].size});
    }
    return true;
  };
  if (!copies(arguments, signature.arguments, true, &call.arguments) ||
      !copies(results, signature.returns, false, &call.results))
    return false;
  Instruction in;
  in.kind = Kind::kCall;
  in.instruction_class = kControl;
  in.target = static_cast<uint32_t>(program_->calls.size());
  program_->calls.push_back(std::move(call));
  Emit(*s, in);
  return parser_->Expect(";");
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
    if (!labels_.emplace(std::string(opcode.text), static_cast<uint32_t>(program_->code.size())).second) {
      return Fail(opcode, "label '" + std::string(opcode.text) + "' stands twice");
    }
    return true;
  }
  s.where = opcode;
  s.opcode = opcode.text;
  while (parser_->Peek().kind == TokenKind::kDirective) s.modifiers.push_back(parser_->Take().text);
  if (program_->code.size() > kMaximumCode) return Fail(opcode, "function too long");
  if (s.opcode == "call") return ParseCall(&s);
  const auto decoder = Decoders().find(s.opcode);
  if (decoder == Decoders().end()) return Fail(opcode, "unknown opcode '" + std::string(s.opcode) + "'");
  if (!parser_->Peek().Is(";")) {
    do {
      Operand o;
      if (!ParseOperand(&o)) return false;
      s.operands.push_back(std::move(o));
    } while (parser_->TakeIf(","));
  }
  if (!parser_->Expect(";")) return false;
  return (this->*decoder->second)(s);
}

bool Body::Block() {
  if (++depth_ > kMaximumDepth) return Fail(parser_->Peek(), "blocks nested too deeply");
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
  const auto declare = [&](const std::vector<Parameter>& parameters) {
    for (const Parameter& p : parameters) {
      Name name;
      name.kind = Name::Kind::kParameter;
      name.index = p.offset;
      name.bytes = p.size;
      name.own = true;
      scopes_.back().names[p.name] = name;
    }
  };
  declare(signature.arguments);
  declare(signature.returns);
  area_bytes_ = is_entry_ ? 0 : (signature.area_bytes + 15) / 16 * 16;
  return Block() && Finish(function);
}

bool Body::Finish(Function* function) {
  Instruction end;  // control that falls off the end returns
  end.kind = Kind::kReturn;
  end.instruction_class = kControl;
  end.line = static_cast<uint32_t>(parser_->Peek().line);
  program_->code.push_back(end);
  std::vector<std::pair<uint32_t, uint32_t>> loops;
  for (const LabelUse& use : label_uses_) {
    const auto label = labels_.find(use.name);
    if (label == labels_.end()) return Fail(use.where, "unknown label '" + use.name + "'");
    program_->code[use.instruction].target = label->second;
    if (label->second <= use.instruction) loops.emplace_back(label->second, use.instruction);
  }
  program_->local_bytes = static_cast<uint32_t>((local_bytes_ + 15) / 16 * 16);
  program_->area_bytes = area_bytes_;
  std::vector<SlotInterval> intervals;
  for (const auto& [slot, interval] : intervals_)
    intervals.push_back({interval.first, interval.last, slot_bytes_[slot]});
  function->registers = EstimateRegisters(std::move(intervals), loops);
  SetFlags(function);
  function->program = program_;
  return true;
}

// Which parameters serve as addresses only: follow what each was loaded into until a use that is not an address.
void Body::SetFlags(Function* function) {
  for (Parameter& p : function->parameters) {
    p.address_only = p.size == 8;
    for (const uint32_t offset : value_parameters_) {
      if (offset >= p.offset && offset < p.offset + p.size) p.address_only = false;
    }
    std::vector<uint32_t> open;
    std::unordered_map<uint32_t, bool> seen;
    for (const auto& [offset, slot] : parameter_loads_) {
      if (offset >= p.offset && offset < p.offset + p.size) open.push_back(slot);
    }
    while (!open.empty() && p.address_only) {
      const uint32_t slot = open.back();
      open.pop_back();
      if (!seen.emplace(slot, true).second) continue;
      if (value_used_.count(slot) != 0) p.address_only = false;
      const auto [begin, end] = flows_.equal_range(slot);
      for (auto it = begin; it != end; ++it) open.push_back(it->second);
    }
  }
}

}  // namespace mete::emulator::ptx
