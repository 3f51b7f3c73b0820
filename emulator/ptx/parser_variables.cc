// Declarations of variables and their initial values.
#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/ptx/parser.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint64_t kMaximumVariable = uint64_t{1} << 32;
constexpr size_t kMaximumSharedVariables = 65536;

}  // namespace

bool Parser::Declare(Declaration* d, bool in_parameter_list) {
  uint32_t vector = 1;
  while (token_.kind == TokenKind::kDirective) {
    const Token at = Take();
    ConstantValue value;
    if (at.text == ".align") {
      if (!ConstantExpression(&value)) return false;
      if (value.bits == 0 || (value.bits & (value.bits - 1)) != 0 || value.bits > 1024)
        return Fail(at, "alignment must be a power of two up to 1024");
      d->alignment = static_cast<uint32_t>(value.bits);
    } else if (at.text == ".v2" || at.text == ".v4") {
      vector = at.text == ".v2" ? 2 : 4;
    } else if (in_parameter_list && at.text == ".ptr") {
      if (TakeIf(".shared"))
        d->pointer_space = Space::kShared;
      else if (TakeIf(".global") || TakeIf(".const") || TakeIf(".local") || TakeIf(".generic"))
        d->pointer_space = Space::kGlobal;
      if (TakeIf(".align") && !ConstantExpression(&value)) return false;
    } else if (at.text == ".attribute") {
      return Fail(at, "variables with an attribute (.managed, .unified) are not supported");
    } else if (TypeNamed(at.text) != Type::kNone) {
      if (d->type != Type::kNone) return Fail(at, "a second type '" + std::string(at.text) + "'");
      d->type = TypeNamed(at.text);
    } else {
      return Fail(at, "unknown directive '" + std::string(at.text) + "'");
    }
  }
  if (d->type == Type::kNone) return Fail(token_, "expected a type");
  if (!TakeName(&d->name, "a name")) return false;
  if (TakeIf("<")) {
    ConstantValue value;
    if (!ConstantExpression(&value) || !Expect(">")) return false;
    if (value.kind != TokenKind::kInteger || value.bits > (1u << 24)) return Fail(d->name, "too many registers");
    d->count = static_cast<uint32_t>(value.bits);
  }
  const uint64_t element = uint64_t{SizeOf(d->type)} * vector;
  d->alignment = std::max(d->alignment, static_cast<uint32_t>(element));
  while (TakeIf("[")) {
    d->is_array = true;
    if (TakeIf("]")) {
      d->unsized = true;
      continue;
    }
    ConstantValue value;
    if (!ConstantExpression(&value) || !Expect("]")) return false;
    if (value.kind != TokenKind::kInteger || value.bits > kMaximumVariable ||
        d->elements * value.bits > kMaximumVariable) {
      return Fail(d->name, "variable '" + std::string(d->name.text) + "' is too large");
    }
    d->elements *= value.bits;
  }
  d->bytes = d->unsized ? 0 : d->elements * element;
  if (d->bytes > kMaximumVariable) return Fail(d->name, "variable '" + std::string(d->name.text) + "' is too large");
  return !failed_;
}

bool Parser::IsExternVariable(const std::string& name) const { return extern_variables_.count(name) != 0; }

uint32_t Parser::AddShared(const Declaration& d, bool dynamic) {
  SharedVariable variable;
  variable.name = std::string(d.name.text);
  variable.bytes = dynamic ? 0 : static_cast<uint32_t>(d.bytes);
  variable.alignment = d.alignment;
  variable.dynamic = dynamic;
  shared_.push_back(std::move(variable));
  return static_cast<uint32_t>(shared_.size() - 1);
}

// generic(name), name, each with + or - and a constant: the addend goes into bits, the variable into address_of.
bool Parser::InitialAddress(const Token& first, uint64_t* bits, uint64_t offset, Global* global) {
  Token name = first;
  if (name.text == "generic" && TakeIf("(") && (!TakeName(&name, "a variable") || !Expect(")"))) return false;
  if (name.kind != TokenKind::kIdentifier) return Fail(name, "a variable is expected here");
  const std::string text(name.text);
  if (token_.Is("+") || token_.Is("-")) {
    TakeIf("+");
    ConstantValue addend;
    if (!ConstantExpression(&addend, 5)) return false;
    *bits = addend.bits;
  }
  if (global_names_.count(text) != 0) {
    global->address_of.emplace_back(offset, text);
    return !failed_;
  }
  const auto function = function_names_.find(text);
  if (function == function_names_.end() || module_->functions_[function->second].is_entry)
    return Fail(name, (IsExternVariable(text) ? "unresolved extern variable '" : "unknown variable '") + text +
                          "' in an initialiser");
  NoteAddress(function->second, name);
  *bits += FunctionAddress(function->second);
  return !failed_;
}

bool Parser::InitialElement(Type type, uint64_t offset, Global* global) {
  const uint32_t size = SizeOf(type);
  const Token at = token_;
  uint64_t bits = 0;
  if (at.kind == TokenKind::kIdentifier) {
    const Token name = Take();
    if (size != 8) return Fail(at, "an address needs a 64-bit element");
    if (!InitialAddress(name, &bits, offset, global)) return false;
  } else {
    ConstantValue value;
    if (!ConstantExpression(&value)) return false;
    bits = value.bits;
    if (size == 1 && TakeIf("(")) {  // 0xFF00(name): one byte of an address; all eight come, lowest first
      const Token name = Take();
      uint64_t address = 0;
      const uint32_t place = bits == 0 ? 8 : static_cast<uint32_t>(__builtin_ctzll(bits)) / 8;
      if (place > 7 || bits != uint64_t{0xff} << (8 * place) || place > offset)
        return Fail(at, "a mask of one byte of an address is expected here");
      Global bytes;
      if (!InitialAddress(name, &address, offset - place, &bytes) || !Expect(")")) return false;
      if (place == 0 && !bytes.address_of.empty()) global->address_of.push_back(bytes.address_of[0]);
      bits = address >> (8 * place) & 0xff;
    } else if (IsFloat(type)) {
      double real = 0;
      float single = 0;
      if (value.kind == TokenKind::kFloat)
        std::memcpy(&real, &bits, sizeof real);
      else if (value.kind == TokenKind::kFloat32)
        std::memcpy(&single, &bits, sizeof single), real = single;
      else
        real = static_cast<double>(static_cast<int64_t>(bits));
      if (type == Type::kF64) {
        std::memcpy(&bits, &real, sizeof real);
      } else if (type == Type::kF32) {
        single = static_cast<float>(real);
        bits = 0;
        std::memcpy(&bits, &single, sizeof single);
      } else if (value.kind == TokenKind::kInteger) {
        bits = value.bits;
      } else {
        return Fail(at, "initialise halves as .b16");
      }
    } else if (value.kind == TokenKind::kFloat) {
      return Fail(at, "an integer is expected here");
    }
  }
  global->initial.resize(std::max<size_t>(global->initial.size(), offset + size));
  std::memcpy(&global->initial[offset], &bits, size);
  return !failed_;
}

bool Parser::Initialiser(const Declaration& d, Global* global) {
  const uint32_t size = SizeOf(d.type);
  if (size == 0) return Fail(d.name, "this type cannot be initialised");
  if (!token_.Is("{")) return InitialElement(d.type, 0, global);
  uint64_t offset = 0;
  int open = 0;
  for (;;) {
    if (TakeIf("{")) {
      if (++open > 8) return Fail(token_, "initialiser nested too deeply");
    } else if (TakeIf("}")) {
      if (--open == 0) break;
    } else if (TakeIf(",")) {
      continue;
    } else {
      if (!d.unsized && offset + size > d.bytes)
        return Fail(token_, "more values than '" + std::string(d.name.text) + "' has elements");
      if (!InitialElement(d.type, offset, global)) return false;
      offset += size;
    }
    if (failed_) return false;
  }
  if (d.unsized) global->size = offset;
  return true;
}

bool Parser::Variable(Space space, bool is_extern) {
  do {
    Declaration d;
    if (!Declare(&d, false)) return false;
    if (d.type == Type::kPred || d.count != 0) return Fail(d.name, "not a variable of memory");
    const std::string name(d.name.text);
    if (global_names_.count(name) + shared_names_.count(name) + function_names_.count(name) != 0) {
      return Fail(d.name, "'" + name + "' is declared twice");
    }
    if (space == Space::kShared) {
      if (d.bytes > kMaximumShared) return Fail(d.name, "'" + name + "' is larger than a block's shared memory");
      if (shared_.size() >= kMaximumSharedVariables) return Fail(d.name, "more than 65536 shared variables");
      if (d.unsized && !is_extern) return Fail(d.name, "only an extern shared array has no size");
      if (TakeIf("=")) return Fail(d.name, "shared variables have no initial value");
      shared_names_[name] = AddShared(d, is_extern);
      continue;
    }
    Global global;
    global.name = name;
    global.size = d.bytes;
    global.alignment = d.alignment;
    global.constant = space == Space::kConst;
    if (is_extern) {
      extern_variables_[name] = true;
      continue;
    }
    if (TakeIf("=")) {
      if (!Initialiser(d, &global)) return false;
    } else if (d.unsized) {
      return Fail(d.name, "'" + name + "' has neither a size nor values");
    }
    extern_variables_.erase(name);
    global_names_[name] = static_cast<uint32_t>(module_->globals_.size());
    module_->globals_.push_back(std::move(global));
  } while (TakeIf(","));
  return Expect(";");
}

}  // namespace mete::emulator::ptx
