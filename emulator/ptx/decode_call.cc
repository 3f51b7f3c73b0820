// Decoding of calls, direct and through an address, of the tables that name prototypes and branch targets, and of
// parameters that are registers: each becomes a place in the lane's parameter area and a move to or from it.
#include <algorithm>

#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {
namespace {

constexpr size_t kMaximumTable = 65536;

}  // namespace

void Body::MoveInArea(const Statement& s, bool load, Type type, uint32_t place, uint32_t slot, uint32_t bytes) {
  Instruction in;
  in.handler = load ? LoadParameter(type, bytes, false) : StoreParameter(type, bytes);
  in.offset = place;
  in.latency = 8;
  in.instruction_class = kLoadStore;
  in.target = static_cast<uint32_t>(program_->lists.size());
  program_->lists.push_back(slot);
  (load ? in.d : in.b) = slot;
  Touch(slot);
  if (load) NoteWrite(slot);
  Emit(s, in);
}

void Body::StoreReturns(const Statement& s) {
  const Signature& signature = parser_->signature(function_);
  for (size_t i = 0; i < return_slots_.size(); ++i) {
    if (return_slots_[i] == kZeroSlot) continue;
    const Type type = signature.return_registers[i];
    MoveInArea(s, false, type, signature.returns[i].offset, return_slots_[i], LaneBytes(type));
  }
}

bool Body::OperandList(std::vector<Operand>* into) {
  if (!parser_->Expect("(")) return false;
  if (parser_->TakeIf(")")) return true;
  do {
    Operand o;
    if (!ParseOperand(&o)) return false;
    into->push_back(std::move(o));
  } while (parser_->TakeIf(","));
  return parser_->Expect(")");
}

// A .param variable is copied; a register or a constant gets a hidden place.
bool Body::ActualParameter(const Statement& s, const Operand& o, const Parameter& formal, bool argument,
                           CallCopy* copy) {
  uint32_t place;
  const Name* name = o.kind == OperandKind::kName ? Find(o.name) : nullptr;
  if (name != nullptr && name->kind == Name::Kind::kParameter && !name->own) {
    if (name->bytes < formal.size) return Fail(o.where, "this .param variable is smaller than the callee's");
    place = name->index;
  } else {
    const Type type = BitsOf(formal.size);
    const bool fits = argument ? o.kind == OperandKind::kRegister || o.kind == OperandKind::kConstant
                               : o.kind == OperandKind::kRegister || o.kind == OperandKind::kSink;
    if (!fits || type == Type::kNone || o.type == Type::kPred)
      return Fail(o.where, "expected a .param variable of this function, or a register of the parameter's size");
    place = (area_bytes_ + formal.size - 1) / formal.size * formal.size;
    area_bytes_ = place + formal.size;
    if (area_bytes_ > kMaximumArea) return Fail(o.where, "parameters of calls need more than 64 KiB");
    if (argument) {
      uint32_t slot, bytes;
      if (!WideSource(o, type, &slot, &bytes)) return false;
      MoveInArea(s, false, type, place, slot, bytes);
    }
  }
  *copy = argument ? CallCopy{place, formal.offset, formal.size} : CallCopy{formal.offset, place, formal.size};
  return true;
}

// call{.uni} (results), function, (arguments){, prototype};
bool Body::ParseCall(Statement* s) {
  TakeModifier(*s, ".uni");
  if (!NoMoreModifiers(*s)) return false;
  std::vector<Operand> results, arguments;
  if (parser_->Peek().Is("(")) {
    if (!OperandList(&results) || !parser_->Expect(",")) return false;
  }
  const Token callee = parser_->Peek();
  Operand target;
  if (!ParseOperand(&target)) return false;
  const bool listed = parser_->TakeIf(",") && parser_->Peek().Is("(");
  if (listed && !OperandList(&arguments)) return false;
  Call call;
  Instruction in;
  in.kind = Kind::kCall;
  in.instruction_class = kControl;
  const Signature* signature = nullptr;
  if (target.kind == OperandKind::kRegister) {
    if (listed && !parser_->TakeIf(",")) return Fail(callee, "a call through a register names its prototype");
    Token name;
    if (!parser_->TakeName(&name, "a prototype")) return false;
    const auto prototype = prototypes_.find(std::string(name.text));
    if (prototype == prototypes_.end()) return Fail(name, "unknown prototype '" + std::string(name.text) + "'");
    signature = &prototype->second;
    in.kind = Kind::kCallIndirect;
    if (!Source(target, Type::kB64, &in.a)) return false;
    call.function = Call::kIndirect;
    call.shape = ShapeOf(*signature);
    program_->calls_indirectly = true;
  } else if (target.kind == OperandKind::kName) {
    const auto function = parser_->function_names().find(target.name);
    if (function == parser_->function_names().end())
      return Fail(callee, "unresolved extern function '" + target.name + "'");
    if (parser_->module().functions()[function->second].is_entry) return Fail(callee, "a kernel cannot be called");
    parser_->NoteCall(function->second, callee);
    signature = &parser_->signature(function->second);
    call.function = function->second;
  } else {
    return Fail(callee, "the function to call is expected here");
  }
  if (results.size() != signature->returns.size() || arguments.size() != signature->arguments.size()) {
    return Fail(callee, "'" + std::string(callee.text) + "' takes " + std::to_string(signature->arguments.size()) +
                            " arguments and gives " + std::to_string(signature->returns.size()) + " results");
  }
  call.arguments.resize(arguments.size());
  call.results.resize(results.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!ActualParameter(*s, arguments[i], signature->arguments[i], true, &call.arguments[i])) return false;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!ActualParameter(*s, results[i], signature->returns[i], false, &call.results[i])) return false;
  }
  const std::vector<CallCopy> places = call.results;
  in.target = static_cast<uint32_t>(program_->calls.size());
  program_->calls.push_back(std::move(call));
  Emit(*s, in);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind != OperandKind::kRegister) continue;
    const Type type = BitsOf(places[i].bytes);
    uint32_t slot, bytes;
    if (!WideDest(results[i], type, &slot, &bytes)) return false;
    MoveInArea(*s, true, type, places[i].to, slot, bytes);
  }
  return parser_->Expect(";");
}

// label: .branchtargets a, b;   label: .callprototype (results) _ (arguments);   label: .calltargets f, g;
bool Body::LabelledTable(const Token& label) {
  const std::string name(label.text);
  const Token what = parser_->Take();
  if (prototypes_.count(name) + branch_tables_.count(name) + labels_.count(name) != 0)
    return Fail(label, "label '" + name + "' stands twice");
  if (what.text == ".callprototype") {
    Signature signature;
    uint32_t offset = 0;
    if (parser_->Peek().Is("(") &&
        !parser_->ParameterList(&signature.returns, &signature.return_registers, &offset, false))
      return false;
    Token own;
    if (!parser_->TakeName(&own, "_")) return false;
    if (parser_->Peek().Is("(") &&
        !parser_->ParameterList(&signature.arguments, &signature.argument_registers, &offset, false))
      return false;
    parser_->TakeIf(".noreturn");
    prototypes_[name] = std::move(signature);
    return parser_->Expect(";");
  }
  std::vector<Token> names;
  do {
    Token entry;
    if (!parser_->TakeName(&entry, "a name")) return false;
    names.push_back(entry);
    if (names.size() > kMaximumTable) return Fail(label, "more than 65536 targets");
  } while (parser_->TakeIf(","));
  if (what.text == ".branchtargets") {
    branch_tables_[name] = std::move(names);
  } else {
    const auto function = parser_->function_names().find(std::string(names[0].text));
    if (function == parser_->function_names().end())
      return Fail(names[0], "unresolved extern function '" + std::string(names[0].text) + "'");
    prototypes_[name] = parser_->signature(function->second);
  }
  return parser_->Expect(";");
}

// brx.idx{.uni} index, table;
bool Body::BranchIndexed(Statement& s) {
  if (!TakeModifier(s, ".idx")) return Fail(s.where, "'brx' needs .idx");
  TakeModifier(s, ".uni");
  if (!NoMoreModifiers(s) || !Need(s, 2, 2)) return false;
  if (s.operands[1].kind != OperandKind::kName) return Fail(s.operands[1].where, "a table of targets is expected here");
  Instruction in;
  in.kind = Kind::kBranchIndexed;
  in.instruction_class = kControl;
  if (!Source(s.operands[0], Type::kU32, &in.a)) return false;
  table_uses_.push_back({static_cast<uint32_t>(program_->code.size()), s.operands[1].name, s.operands[1].where});
  Emit(s, in);
  return true;
}

// Names become places in the code; loops: from a target to a branch behind it.
bool Body::ResolveLabels(std::vector<std::pair<uint32_t, uint32_t>>* loops) {
  for (const LabelUse& use : label_uses_) {
    const auto label = labels_.find(use.name);
    if (label == labels_.end()) return Fail(use.where, "unknown label '" + use.name + "'");
    program_->code[use.instruction].target = label->second;
    if (label->second <= use.instruction) loops->emplace_back(label->second, use.instruction);
  }
  struct Table {
    uint32_t first, count, lowest;
  };
  std::unordered_map<std::string, Table> placed;
  for (const LabelUse& use : table_uses_) {
    const auto table = branch_tables_.find(use.name);
    if (table == branch_tables_.end()) return Fail(use.where, "unknown table of targets '" + use.name + "'");
    const auto [known, fresh] = placed.emplace(use.name, Table{static_cast<uint32_t>(program_->lists.size()),
                                                               static_cast<uint32_t>(table->second.size()), ~0u});
    for (size_t i = 0; fresh && i < table->second.size(); ++i) {
      const Token& name = table->second[i];
      const auto label = labels_.find(std::string(name.text));
      if (label == labels_.end()) return Fail(name, "unknown label '" + std::string(name.text) + "'");
      program_->lists.push_back(label->second);
      known->second.lowest = std::min(known->second.lowest, label->second);
    }
    Instruction& in = program_->code[use.instruction];
    in.target = known->second.first;
    in.offset = known->second.count;
    if (known->second.lowest <= use.instruction) loops->emplace_back(known->second.lowest, use.instruction);
  }
  return true;
}

}  // namespace mete::emulator::ptx
