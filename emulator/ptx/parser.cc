#include "emulator/ptx/parser.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {
namespace {

constexpr uint32_t kMaximumParameters = 32764;  // bytes of a kernel's parameters
constexpr size_t kMaximumFunctions = 16384, kMaximumLayouts = size_t{1} << 24;

uint64_t RoundUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

Parser::Parser(std::string_view text, uint32_t max_isa_version, Module* module, Error* error)
    : lexer_(text), max_isa_version_(max_isa_version), module_(module), error_(error) {
  token_ = lexer_.Next();
}

Token Parser::Take() {
  Token taken = token_;
  if (token_.kind == TokenKind::kBad) Fail(token_, "unreadable '" + std::string(token_.text) + "'");
  if (token_.kind != TokenKind::kEnd) token_ = lexer_.Next();
  return taken;
}

bool Parser::TakeIf(std::string_view what) {
  if (!token_.Is(what)) return false;
  Take();
  return true;
}

bool Parser::Expect(std::string_view what) {
  if (TakeIf(what)) return true;
  const std::string found =
      token_.kind == TokenKind::kEnd ? "the end of the text" : "'" + std::string(token_.text) + "'";
  return Fail(token_, "expected '" + std::string(what) + "', found " + found);
}

bool Parser::TakeName(Token* name, const char* what) {
  if (token_.kind != TokenKind::kIdentifier) {
    return Fail(token_, std::string("expected ") + what + ", found '" + std::string(token_.text) + "'");
  }
  *name = Take();
  return !failed_;
}

bool Parser::Fail(const Token& where, std::string message) {
  if (failed_) return false;
  failed_ = true;
  error_->kind = ErrorKind::kInvalidPtx;
  error_->line = where.line;
  error_->column = where.column;
  error_->message = std::move(message);
  return false;
}

// Integers with C's operators; a lone floating constant, perhaps negative.
bool Parser::ConstantExpression(ConstantValue* value, int precedence) {
  if (++depth_ > kMaximumNesting) return Fail(token_, "constant expression nested too deeply");
  struct Leave {
    int* depth;
    ~Leave() { --*depth; }
  } leave{&depth_};
  const Token first = token_;
  if (TakeIf("(")) {
    if (!ConstantExpression(value) || !Expect(")")) return false;
  } else if (TakeIf("-") || TakeIf("+") || TakeIf("~") || TakeIf("!")) {
    if (!ConstantExpression(value, 10)) return false;
    if (first.Is("-")) {
      if (value->kind == TokenKind::kFloat)
        value->bits ^= uint64_t{1} << 63;
      else if (value->kind == TokenKind::kFloat32)
        value->bits ^= uint64_t{1} << 31;
      else
        value->bits = 0 - value->bits;
    } else if (!first.Is("+")) {
      if (value->kind != TokenKind::kInteger) return Fail(first, "'" + std::string(first.text) + "' needs an integer");
      value->bits = first.Is("~") ? ~value->bits : value->bits == 0 ? 1 : 0;
    }
  } else if (first.kind == TokenKind::kInteger || first.kind == TokenKind::kFloat ||
             first.kind == TokenKind::kFloat32) {
    value->kind = first.kind;
    value->bits = first.bits;
    Take();
  } else {
    return Fail(first, "expected a constant, found '" + std::string(first.text) + "'");
  }
  for (;;) {
    struct Operator {
      std::string_view text;
      int level;
    };
    static constexpr Operator kOperators[] = {{"|", 1}, {"^", 2}, {"&", 3}, {"<<", 4}, {">>", 4},
                                              {"+", 5}, {"-", 5}, {"*", 6}, {"/", 6},  {"%", 6}};
    const Operator* found = nullptr;
    for (const Operator& op : kOperators)
      if (token_.Is(op.text)) found = &op;
    if (found == nullptr || found->level <= precedence) return !failed_;
    const Token at = Take();
    ConstantValue right;
    if (!ConstantExpression(&right, found->level)) return false;
    if (value->kind != TokenKind::kInteger || right.kind != TokenKind::kInteger)
      return Fail(at, "operators need integers");
    const uint64_t a = value->bits, b = right.bits;
    switch (found->text[0]) {
      case '|': value->bits = a | b; break;
      case '^': value->bits = a ^ b; break;
      case '&': value->bits = a & b; break;
      case '<': value->bits = b > 63 ? 0 : a << b; break;
      case '>': value->bits = b > 63 ? 0 : a >> b; break;
      case '+': value->bits = a + b; break;
      case '-': value->bits = a - b; break;
      case '*': value->bits = a * b; break;
      default:
        if (b == 0) return Fail(at, "division by zero");
        value->bits = found->text[0] == '/' ? a / b : a % b;
    }
  }
}

bool Parser::SkipDebugDirective() {
  const Token at = Take();
  const int line = at.line;
  if (at.text == ".pragma") {
    while (token_.kind != TokenKind::kEnd && !token_.Is(";")) Take();
    return Expect(";");
  }
  // .loc and .file end with their line.
  while (token_.kind != TokenKind::kEnd && token_.line == line) {
    Take();
    if (failed_) return false;
  }
  return true;
}

bool Parser::SkipSection() {
  while (token_.kind != TokenKind::kEnd && !token_.Is("{")) Take();
  if (!Expect("{")) return false;
  int open = 1;
  while (open > 0 && token_.kind != TokenKind::kEnd && !failed_) {
    if (token_.Is("{")) ++open;
    if (token_.Is("}")) --open;
    Take();
  }
  return open == 0 ? !failed_ : Fail(token_, "section without an end");
}

bool Parser::Version() {
  if (!token_.Is(".version")) return Fail(token_, "a module begins with .version");
  Take();
  const Token number = Take();
  if (number.kind != TokenKind::kFloat) return Fail(number, "expected a version such as 7.8");
  const size_t dot = number.text.find('.');
  if (dot == std::string_view::npos || dot + 1 >= number.text.size() || number.text.size() > dot + 2 || dot > 3) {
    return Fail(number, "expected a version such as 7.8");
  }
  uint32_t version = 0;
  for (const char c : number.text) {
    if (c == '.') continue;
    if (c < '0' || c > '9') return Fail(number, "expected a version such as 7.8");
    version = version * 10 + static_cast<uint32_t>(c - '0');
  }
  if (version > max_isa_version_) {
    Fail(number, "PTX " + std::string(number.text) + " is newer than this driver's " +
                     std::to_string(max_isa_version_ / 10) + "." + std::to_string(max_isa_version_ % 10));
    error_->kind = ErrorKind::kUnsupportedVersion;
    return false;
  }
  module_->isa_version_ = version;
  return !failed_;
}

bool Parser::Target() {
  if (!Expect(".target")) return false;
  do {
    Token name;
    if (!TakeName(&name, "a target such as sm_70")) return false;
    if (name.text.rfind("sm_", 0) != 0) {
      if (name.text == "texmode_independent" || name.text == "texmode_unified" || name.text == "debug" ||
          name.text == "map_f64_to_f32")
        continue;
      return Fail(name, "unknown target '" + std::string(name.text) + "'");
    }
    uint32_t number = 0;
    for (const char c : name.text.substr(3)) {
      if (c < '0' || c > '9') {
        if (number != 0 && (c == 'a' || c == 'f')) continue;
        return Fail(name, "unknown target '" + std::string(name.text) + "'");
      }
      if (number > 1000) return Fail(name, "unknown target '" + std::string(name.text) + "'");
      number = number * 10 + static_cast<uint32_t>(c - '0');
    }
    module_->target_ = number;
  } while (TakeIf(","));
  if (module_->target_ == 0) return Fail(token_, ".target names no sm_ architecture");
  return !failed_;
}

std::string ShapeOf(const Signature& signature) {
  std::string shape;
  for (const Parameter& p : signature.returns) shape += std::to_string(p.size) + "r";
  for (const Parameter& p : signature.arguments) shape += std::to_string(p.size) + "a";
  return shape;
}

void Parser::NoteCall(uint32_t function, const Token& where) { calls_.emplace(function, where); }

void Parser::NoteAddress(uint32_t function, const Token& where) {
  calls_.emplace(function, where);
  by_address_.insert(function);
}

bool Parser::ParameterList(std::vector<Parameter>* parameters, std::vector<Type>* registers, uint32_t* offset,
                           bool entry) {
  if (!Expect("(")) return false;
  if (TakeIf(")")) return true;
  std::unordered_set<std::string> names;
  do {
    const bool in_register = !entry && TakeIf(".reg");
    if (!in_register && !TakeIf(".param")) return Fail(token_, "expected .param");
    Declaration d;
    if (!Declare(&d, true)) return false;
    if (d.unsized || d.bytes == 0 || d.count != 0 || (in_register && d.is_array))
      return Fail(d.name, "parameter '" + std::string(d.name.text) + "' has no size");
    const uint64_t at = RoundUp(*offset, d.alignment);
    if (at + d.bytes > kMaximumParameters) return Fail(d.name, "more than 32764 bytes of parameters");
    Parameter p;
    p.name = std::string(d.name.text);
    p.offset = static_cast<uint32_t>(at);
    p.size = static_cast<uint32_t>(d.bytes);
    p.alignment = d.alignment;
    if (p.name != "_" && !names.insert(p.name).second) return Fail(d.name, "'" + p.name + "' is declared twice");
    parameters->push_back(std::move(p));
    registers->push_back(in_register ? d.type : Type::kNone);
    *offset = static_cast<uint32_t>(at + d.bytes);
  } while (TakeIf(","));
  return Expect(")");
}

bool Parser::FunctionDirectives(Function* function) {
  while (token_.kind == TokenKind::kDirective) {
    const Token at = Take();
    ConstantValue value;
    if (at.text == ".maxntid" || at.text == ".reqntid") {
      for (uint32_t i = 0; i < 3; ++i) function->max_threads[i] = 1;
      for (uint32_t i = 0; i < 3; ++i) {
        if (!ConstantExpression(&value)) return false;
        if (value.kind != TokenKind::kInteger || value.bits == 0 || value.bits > 1024)
          return Fail(at, "a block has 1 to 1024 threads");
        function->max_threads[i] = static_cast<uint32_t>(value.bits);
        if (!TakeIf(",")) break;
      }
      if (uint64_t{function->max_threads[0]} * function->max_threads[1] * function->max_threads[2] > 1024)
        return Fail(at, "a block has 1 to 1024 threads");
      function->exact_threads = at.text == ".reqntid";
    } else if (at.text == ".reqnctapercluster" || at.text == ".maxclusterrank") {
      uint64_t blocks = 1;
      do {
        if (!ConstantExpression(&value)) return false;
        blocks *= std::min<uint64_t>(value.bits, 64);
      } while (blocks <= 64 && TakeIf(","));
      if (at.text == ".reqnctapercluster" && blocks != 1)
        return Fail(at, "clusters of more than one block are not supported");
    } else if (at.text == ".minnctapersm" || at.text == ".maxnctapersm" || at.text == ".maxnreg") {
      if (!ConstantExpression(&value)) return false;
    } else if (at.text == ".pragma") {
      while (token_.kind != TokenKind::kEnd && !token_.Is(";")) Take();
      if (!Expect(";")) return false;
    } else if (at.text != ".noreturn" && at.text != ".explicitcluster") {
      return Fail(at, "unknown directive '" + std::string(at.text) + "'");
    }
  }
  return !failed_;
}

bool Parser::FunctionOrEntry(bool is_entry, bool is_extern) {
  Function function;
  function.is_entry = is_entry;
  Signature signature;
  uint32_t offset = 0;
  if (!is_entry && token_.Is("(") && !ParameterList(&signature.returns, &signature.return_registers, &offset, false))
    return false;
  Token name;
  if (!TakeName(&name, "a function's name")) return false;
  function.name = std::string(name.text);
  if (is_entry) offset = 0;
  if (token_.Is("(") && !ParameterList(&signature.arguments, &signature.argument_registers, &offset, is_entry))
    return false;
  signature.area_bytes = offset;
  if (!FunctionDirectives(&function)) return false;
  if (global_names_.count(function.name) + shared_names_.count(function.name) != 0)
    return Fail(name, "'" + function.name + "' is declared twice");
  uint32_t index = static_cast<uint32_t>(module_->functions_.size());
  const auto known = function_names_.find(function.name);
  if (known != function_names_.end()) {
    index = known->second;
    const Signature& before = signatures_[index];
    if (before.defined && !token_.Is(";")) return Fail(name, "function '" + function.name + "' is defined twice");
    if (ShapeOf(before) != ShapeOf(signature) || module_->functions_[index].is_entry != is_entry) {
      return Fail(name, "function '" + function.name + "' was declared differently before");
    }
  } else {
    function_names_[function.name] = index;
    if (index >= kMaximumFunctions) return Fail(name, "more than 16384 functions");
    module_->functions_.push_back(Function());
    signatures_.push_back(Signature());
  }
  if (is_extern || token_.Is(";")) {
    if (known == function_names_.end()) {
      module_->functions_[index] = std::move(function);
      signatures_[index] = std::move(signature);
    }
    return Expect(";");
  }
  function.parameters = is_entry ? signature.arguments : std::vector<Parameter>();
  function.parameter_bytes = is_entry ? offset : 0;
  signature.defined = true;
  signatures_[index] = signature;
  module_->functions_[index] = function;
  Body body(this, index, name);
  if (!body.Parse(&function)) return false;
  module_->functions_[index] = std::move(function);
  return true;
}

bool Parser::TopLevel() {
  bool is_extern = false;
  for (;;) {
    const Token at = Take();
    if (failed_) return false;
    if (at.text == ".alias") return Alias();
    if (at.text == ".visible" || at.text == ".weak" || at.text == ".common") continue;
    if (at.text == ".extern") {
      is_extern = true;
      continue;
    }
    if (at.kind != TokenKind::kDirective) return Fail(at, "expected a directive, found '" + std::string(at.text) + "'");
    if (at.text == ".global") return Variable(Space::kGlobal, is_extern);
    if (at.text == ".const") return Variable(Space::kConst, is_extern);
    if (at.text == ".shared") return Variable(Space::kShared, is_extern);
    if (at.text == ".entry") return FunctionOrEntry(true, is_extern);
    if (at.text == ".func") return FunctionOrEntry(false, is_extern);
    return Fail(at, "unknown directive '" + std::string(at.text) + "'");
  }
}

// .alias another, function;
bool Parser::Alias() {
  Token name, of;
  if (!TakeName(&name, "a name") || !Expect(",") || !TakeName(&of, "a function's name")) return false;
  const auto function = function_names_.find(std::string(of.text));
  if (function == function_names_.end() || !signatures_[function->second].defined ||
      module_->functions_[function->second].is_entry)
    return Fail(of, "'" + std::string(of.text) + "' is no function that is defined here");
  const auto known = function_names_.find(std::string(name.text));
  if (known != function_names_.end() && signatures_[known->second].defined)
    return Fail(name, "function '" + std::string(name.text) + "' is defined twice");
  // Calls that named it before reach the same body.
  if (known != function_names_.end()) {
    signatures_[known->second] = signatures_[function->second];
    module_->functions_[known->second] = module_->functions_[function->second];
  }
  function_names_[std::string(name.text)] = function->second;
  return Expect(";");
}

// Static variables that the entry's call tree names, one after the other; the dynamic ones after them, all at one
// place.
void Parser::LayOutShared(Function* entry) {
  auto program = std::make_shared<Program>(*entry->program);
  std::vector<bool> seen(module_->functions_.size()), used(shared_.size());
  std::vector<uint32_t> open = {function_names_[entry->name]};
  bool barriers = false, steered = false, indirect = false;
  while (!open.empty()) {
    const uint32_t index = open.back();
    open.pop_back();
    if (seen[index]) continue;
    seen[index] = true;
    const Program& p = *module_->functions_[index].program;
    for (const uint32_t variable : p.shared_used) used[variable] = true;
    for (const Call& call : p.calls) {
      if (call.function != Call::kIndirect) open.push_back(call.function);
    }
    if (p.calls_indirectly && !indirect) {
      indirect = true;
      open.insert(open.end(), by_address_.begin(), by_address_.end());
    }
    barriers |= p.synchronises;
    steered |= p.steered_by_memory;
  }
  entry->steered_by_memory = steered;
  program->synchronises_anywhere = barriers;
  program->shared_offsets.assign(shared_.size(), Program::kNotThere);
  uint64_t offset = 0;
  for (size_t i = 0; i < shared_.size(); ++i) {
    if (!used[i] || shared_[i].dynamic) continue;
    offset = RoundUp(offset, shared_[i].alignment);
    program->shared_offsets[i] = static_cast<uint32_t>(offset);
    offset += shared_[i].bytes;
  }
  for (size_t i = 0; i < shared_.size(); ++i) {
    if (used[i] && shared_[i].dynamic) offset = RoundUp(offset, std::max(16u, shared_[i].alignment));
  }
  for (size_t i = 0; i < shared_.size(); ++i) {
    if (used[i] && shared_[i].dynamic) program->shared_offsets[i] = static_cast<uint32_t>(offset);
  }
  entry->static_shared_bytes = static_cast<uint32_t>(offset);
  entry->program = std::move(program);
}

bool Parser::Finish() {
  for (const auto& [function, where] : calls_) {
    if (!signatures_[function].defined)
      return Fail(where, "unresolved extern function '" + module_->functions_[function].name + "'");
  }
  // Local memory of a call tree without recursion; with recursion the stack grows as calls are made.
  std::vector<int> state(module_->functions_.size());
  std::vector<uint32_t> total(module_->functions_.size());
  for (size_t root = 0; root < module_->functions_.size(); ++root) {
    std::vector<std::pair<uint32_t, size_t>> path;
    if (state[root] != 0 || !signatures_[root].defined) continue;
    path.emplace_back(static_cast<uint32_t>(root), 0);
    state[root] = 1;
    while (!path.empty()) {
      auto& [index, next] = path.back();
      const Program& p = *module_->functions_[index].program;
      if (next < p.calls.size()) {
        const uint32_t callee = p.calls[next++].function;
        if (callee != Call::kIndirect && state[callee] == 0) {
          state[callee] = 1;
          path.emplace_back(callee, 0);
        }
        continue;
      }
      uint32_t deepest = 0;
      for (const Call& call : p.calls) {
        if (call.function != Call::kIndirect) deepest = std::max(deepest, total[call.function]);
      }
      total[index] = static_cast<uint32_t>(RoundUp(p.local_bytes, 16)) + deepest;
      state[index] = 2;
      path.pop_back();
    }
  }
  size_t entries = 0;
  for (const Function& f : module_->functions_) entries += f.is_entry ? 1 : 0;
  if (entries * shared_.size() > kMaximumLayouts) return Fail(token_, "too many kernels and shared variables");
  for (size_t i = 0; i < module_->functions_.size(); ++i) {
    Function& f = module_->functions_[i];
    if (!signatures_[i].defined) continue;
    f.local_bytes = total[i];
    if (!f.is_entry) continue;
    LayOutShared(&f);
    if (f.static_shared_bytes > kMaximumShared)
      return Fail(token_, "kernel '" + f.name + "' needs more shared memory than a block can have");
  }
  module_->addresses_ = std::make_shared<std::vector<uint64_t>>(module_->globals_.size(), 0);
  return true;
}

bool Parser::Run() {
  if (!Version() || !Target()) return false;
  if (TakeIf(".address_size")) {
    const Token size = Take();
    if (size.kind != TokenKind::kInteger || size.bits != 64) return Fail(size, "only 64-bit addresses are supported");
  }
  while (token_.kind != TokenKind::kEnd && !failed_) {
    if (token_.Is(".file") || token_.Is(".loc") || token_.Is(".pragma")) {
      if (!SkipDebugDirective()) return false;
    } else if (token_.Is(".section")) {
      if (!SkipSection()) return false;
    } else if (TakeIf(";")) {
      continue;
    } else if (!TopLevel()) {
      return false;
    }
  }
  return !failed_ && Finish();
}

const Function* Module::FindEntry(std::string_view name) const {
  for (const Function& f : functions_)
    if (f.is_entry && f.program != nullptr && f.name == name) return &f;
  return nullptr;
}

void Module::Place(size_t index, uint64_t address) { (*addresses_)[index] = address; }

bool Parse(std::string_view text, uint32_t max_isa_version, Module* module, Error* error) {
  Module parsed;
  *error = Error();
  Parser parser(text, max_isa_version, &parsed, error);
  if (!parser.Run()) return false;
  *module = std::move(parsed);
  return true;
}

}  // namespace mete::emulator::ptx
