// The grammar of a PTX module: directives, variables, functions. Bodies are Body's (body.h). One parser per text; after
// the first error everything unwinds and nothing of the module is used. Depth of nesting is bounded.
#ifndef METE_EMULATOR_PTX_PARSER_H_
#define METE_EMULATOR_PTX_PARSER_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "emulator/ptx/lexer.h"
#include "emulator/ptx/program.h"
#include "emulator/ptx/ptx.h"

namespace mete::emulator::ptx {

inline constexpr uint32_t kMaximumShared = 232448;  // bytes a block can have on any architecture
inline constexpr int kMaximumNesting = 64;          // of expressions, operands, blocks

// What another function sees of a function.
struct Signature {
  std::vector<Parameter> returns;  // offsets in the per-lane parameter area
  std::vector<Parameter> arguments;
  std::vector<Type> return_registers, argument_registers;  // type of a .reg parameter, kNone: .param
  uint32_t area_bytes = 0;
  bool defined = false;
};

// Sizes of results and arguments, in order: two functions of one shape have the same parameter area.
std::string ShapeOf(const Signature& signature);

struct ConstantValue {  // of a constant expression
  uint64_t bits = 0;    // integer, or the bits of a double or a float
  TokenKind kind = TokenKind::kInteger;
};

// What one variable declaration says: ".align 4 .b8 name[16]".
struct Declaration {
  Token name;
  Type type = Type::kNone;
  uint64_t bytes = 0;
  uint64_t elements = 1;
  uint32_t alignment = 1;
  uint32_t count = 0;  // name<count>: that many registers
  bool is_array = false, unsized = false;
  Space pointer_space = Space::kGeneric;
};

class Parser {
 public:
  Parser(std::string_view text, uint32_t max_isa_version, Module* module, Error* error);
  bool Run();

  // For Body.
  const Token& Peek() const { return token_; }
  Token Take();
  bool TakeIf(std::string_view what);
  bool Expect(std::string_view what);
  bool TakeName(Token* name, const char* what);
  bool Fail(const Token& where, std::string message);
  bool ConstantExpression(ConstantValue* value, int precedence = 0);
  bool Declare(Declaration* declaration, bool in_parameter_list);  // after the state space
  bool SkipDebugDirective();                                       // .loc, .file, .pragma
  // (.param .b32 a, .reg .u32 b): offsets continue at *offset. A prototype's parameters may all be called _.
  bool ParameterList(std::vector<Parameter>* parameters, std::vector<Type>* registers, uint32_t* offset, bool entry);
  bool failed() const { return failed_; }

  Module& module() { return *module_; }
  const std::unordered_map<std::string, uint32_t>& global_names() const { return global_names_; }
  const std::unordered_map<std::string, uint32_t>& shared_names() const { return shared_names_; }
  const std::unordered_map<std::string, uint32_t>& function_names() const { return function_names_; }
  const Signature& signature(uint32_t function) const { return signatures_[function]; }
  bool IsExternVariable(const std::string& name) const;
  uint32_t AddShared(const Declaration& declaration, bool dynamic);
  const SharedVariable& shared(uint32_t index) const { return shared_[index]; }
  void NoteCall(uint32_t function, const Token& where);
  void NoteAddress(uint32_t function, const Token& where);  // its address is taken: it may be called through it

 private:
  bool Version();
  bool Target();
  bool TopLevel();
  bool Variable(Space space, bool is_extern);
  bool Initialiser(const Declaration& declaration, Global* global);
  bool InitialElement(Type type, uint64_t offset, Global* global);
  bool FunctionOrEntry(bool is_entry, bool is_extern);
  bool FunctionDirectives(Function* function);
  bool SkipSection();
  bool Alias();
  bool InitialAddress(const Token& name, uint64_t* bits, uint64_t offset, Global* global);
  bool Finish();
  void LayOutShared(Function* entry);

  Lexer lexer_;
  Token token_;
  uint32_t max_isa_version_;
  Module* module_;
  Error* error_;
  bool failed_ = false;
  int depth_ = 0;
  std::unordered_map<std::string, uint32_t> global_names_, shared_names_, function_names_;
  std::unordered_map<std::string, bool> extern_variables_;
  std::vector<SharedVariable> shared_;
  std::vector<Signature> signatures_;
  std::unordered_map<uint32_t, Token> calls_;  // first call of each function
  std::unordered_set<uint32_t> by_address_;    // functions whose address is taken
};

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_PARSER_H_
