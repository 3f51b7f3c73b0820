// A function's body: names in scope, operands, and the decoding of each statement into an Instruction. The families of
// opcodes stand in decode_*.cc, one table of member functions. Belongs to a Parser for the length of one body.
#ifndef METE_EMULATOR_PTX_BODY_H_
#define METE_EMULATOR_PTX_BODY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "emulator/ptx/handlers.h"
#include "emulator/ptx/loops.h"
#include "emulator/ptx/parser.h"

namespace mete::emulator::ptx {

inline constexpr uint32_t kMaximumArea = 64 * 1024;  // bytes of parameters that a lane passes on

enum class OperandKind : uint8_t { kNone, kRegister, kConstant, kName, kSpecial, kAddress, kVector, kSink };

struct Operand {
  OperandKind kind = OperandKind::kNone;
  Token where;
  Type type = Type::kNone;  // of a register
  uint32_t slot = 0;        // of a register
  ConstantValue constant;   // kConstant; the displacement of kAddress and kName in bits
  std::string name;         // kName, kSpecial; the base of an address that is a name
  bool negated = false;     // !p
  bool base_is_name = false, base_is_register = false;
  std::vector<Operand> elements;  // kVector; for d|p the second result
};

struct Statement {
  Token where;
  std::string_view opcode;
  std::vector<std::string_view> modifiers;
  std::vector<Operand> operands;
  uint32_t guard = kZeroSlot;
  bool guard_negated = false;
};

class Body {
 public:
  Body(Parser* parser, uint32_t function, Token name);
  bool Parse(Function* function);  // from the opening brace; fills in program and the estimates

 private:
  enum class Use : uint8_t { kValue, kAddress, kFlow };
  struct Name {
    enum class Kind : uint8_t { kRegister, kParameter, kLocal, kShared } kind = Kind::kRegister;
    Type type = Type::kNone;
    uint32_t slot = 0;   // register; 0: none yet
    uint32_t index = 0;  // shared: variable; parameter, local: offset
    uint32_t bytes = 0;
    bool own = false;  // parameter: of this function itself
  };
  struct Range {
    Type type;
    uint32_t count;
  };
  struct Scope {
    std::unordered_map<std::string, Name> names;
    std::unordered_map<std::string, Range> ranges;
  };

  // body.cc: structure, names and operands.
  bool Block();
  bool DeclareVariables(Space space);
  bool DeclareRegisters();
  bool ParseStatement();
  bool ParseOperand(Operand* operand);
  bool DeclareName(const Token& where, Name name);
  bool DeclareSignature();  // this function's own parameters; those in registers are loaded
  // decode_call.cc
  bool ParseCall(Statement* s);
  bool OperandList(std::vector<Operand>* into);
  bool LabelledTable(const Token& label);  // .callprototype .calltargets .branchtargets
  bool ActualParameter(const Statement& s, const Operand& o, const Parameter& formal, bool argument, CallCopy* copy);
  void MoveInArea(const Statement& s, bool load, Type type, uint32_t place, uint32_t slot, uint32_t bytes);
  void StoreReturns(const Statement& s);
  bool BranchIndexed(Statement& s);
  bool ResolveLabels(std::vector<std::pair<uint32_t, uint32_t>>* loops);
  Name* Find(const std::string& name);
  bool Finish(Function* function);
  bool Fail(const Token& where, std::string message) { return parser_->Fail(where, std::move(message)); }
  void SetFlags(Function* function);

  // operands.cc: from operands to slots. All return false (or 0) after a Fail.
  uint32_t AllocateSlot(uint32_t lane_bytes);
  uint32_t ConstantSlot(ConstantKind kind, uint32_t bytes, uint32_t index, uint64_t value);
  bool Source(const Operand& o, Type type, uint32_t* slot, Use use = Use::kValue);
  bool WideSource(const Operand& o, Type type, uint32_t* slot, uint32_t* bytes);  // register at least as wide
  bool Dest(const Operand& o, Type type, uint32_t* slot);
  bool WideDest(const Operand& o, Type type, uint32_t* slot, uint32_t* bytes);
  bool AddressOf(const Operand& o, Space space, Instruction* in);
  bool VariableSlot(const Operand& o, uint32_t bytes, uint32_t* slot);
  static bool IsSpecial(std::string_view name);  // %tid, %clock …
  bool SpecialSlot(const Operand& o, Type type, uint32_t* slot);
  bool ParameterPlace(const Operand& o, uint32_t bytes, uint32_t* offset, bool* own);
  bool Predicate(const Operand& o, uint32_t* slot);  // negation becomes an instruction
  uint64_t ImmediateBits(const Operand& o, Type type, bool* ok);
  void Touch(uint32_t slot);
  void NoteWrite(uint32_t slot);
  void NoteFact(Fact::Kind kind, const Instruction& in, Compare compare = Compare::kEq, Type type = Type::kNone);
  bool TargetHas(const Statement& s);  // what the opcode needs of .version and .target
  void Flow(uint32_t to, uint32_t from);

  // Statement helpers.
  bool TakeModifier(Statement& s, std::string_view modifier);
  Type TakeType(Statement& s);  // the last modifier that is a type
  std::string_view TakeOneOf(Statement& s, std::initializer_list<std::string_view> modifiers);
  bool Need(const Statement& s, size_t least, size_t most);
  bool NoMoreModifiers(const Statement& s);
  Instruction& Emit(const Statement& s, Instruction in);
  bool Unsupported(const Statement& s, Type type);
  bool FloatFlags(Statement& s, uint8_t* flags, bool* approximate);

  using Decoder = bool (Body::*)(Statement&);
  struct Opcode {
    Decoder decode;
    bool has_needs;  // TargetHas has something to say
  };
  static const std::unordered_map<std::string_view, Opcode>& Decoders();
  static bool HasNeeds(std::string_view opcode);
  // decode_arithmetic.cc
  bool Arithmetic(Statement& s);  // add sub div min max, and mul mad fma
  bool Unary(Statement& s);       // neg abs not popc …, rcp sqrt …
  bool Logic(Statement& s);       // and or xor shl shr rem
  bool Fields(Statement& s);      // bfe bfi prmt shf lop3 sad
  bool Compare_(Statement& s);    // setp set
  bool Selection(Statement& s);   // selp slct
  bool Test(Statement& s);        // testp copysign
  // decode_integer.cc
  bool CarryChain(Statement& s);     // addc subc madc, and add sub mad with .cc
  bool Product24Bits(Statement& s);  // mul24 mad24
  bool Dot(Statement& s);            // dp4a dp2a
  bool Search(Statement& s);         // fns bmsk szext
  // decode_matrix.cc
  bool MatrixMultiplyAdd(Statement& s);  // mma
  bool MatrixMoveMany(Statement& s);     // ldmatrix stmatrix
  bool EmitWithList(const Statement& s, Instruction in, const std::vector<uint32_t>& slots);
  // decode_async.cc
  bool CopyAsync(Statement& s);          // cp.async
  bool MemoryBarrierWord(Statement& s);  // mbarrier
  bool MemoryOrder(Statement& s);        // membar, fence, prefetch …: order is what the interpreter has anyway
  bool Nothing(Statement& s);            // what has no effect here: griddepcontrol, setmaxnreg, pmevent …
  bool NotSupported(Statement& s);
  bool FloatForm(Statement& s, Type type, int operands);
  // decode_data.cc
  bool Mov(Statement& s);
  bool Cvt(Statement& s);
  bool CvtSpecial(Statement& s);
  bool Cvta(Statement& s);
  bool Isspacep(Statement& s);
  bool LoadStore(Statement& s);
  bool Parameter_(Statement& s, bool load, Type type, uint32_t count);
  bool AtomicOperation(Statement& s);
  // decode_control.cc
  bool Branch(Statement& s);
  bool Leave(Statement& s);     // ret exit trap brkpt
  bool Barrier(Statement& s);   // bar, barrier
  bool Together(Statement& s);  // shfl vote match redux activemask
  bool Sleeping(Statement& s);

  Parser* parser_;
  uint32_t function_;
  Token name_;
  bool is_entry_ = false;
  std::shared_ptr<Program> program_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string, uint32_t> labels_;
  struct LabelUse {
    uint32_t instruction;
    std::string name;
    Token where;
  };
  std::vector<LabelUse> label_uses_;
  std::vector<LabelUse> table_uses_;  // brx.idx
  std::unordered_map<std::string, std::vector<Token>> branch_tables_;
  std::unordered_map<std::string, Signature> prototypes_;
  std::vector<uint32_t> return_slots_;  // of results that are registers; kZeroSlot: not one
  uint32_t carry_slot_ = 0;             // CC.CF, once something names it
  BodyNotes notes_;
  std::map<std::tuple<uint8_t, uint32_t, uint32_t, uint64_t>, uint32_t> constant_slots_;
  uint64_t local_bytes_ = 0;
  uint32_t area_bytes_ = 0;
  int depth_ = 0;
  // For the estimates: where each slot is first and last named, and how addresses flow.
  struct Interval {
    uint32_t first, last, bytes;
  };
  std::unordered_map<uint32_t, Interval> intervals_;
  std::unordered_map<uint32_t, uint32_t> slot_bytes_;
  std::unordered_multimap<uint32_t, uint32_t> flows_;  // from → to
  std::unordered_map<uint32_t, bool> value_used_;
  std::vector<std::pair<uint32_t, uint32_t>> parameter_loads_;  // offset, slot
  std::vector<uint32_t> value_parameters_;                      // offsets read in another way
};

// analysis.cc
struct SlotInterval {
  uint32_t first, last, bytes;
};
// 32-bit registers alive at once, with loops taken into account; rounded as hardware allocates them.
uint32_t EstimateRegisters(std::vector<SlotInterval> intervals,
                           const std::vector<std::pair<uint32_t, uint32_t>>& loops);

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_BODY_H_
