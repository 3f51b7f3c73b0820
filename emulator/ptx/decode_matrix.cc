// Decoding of matrix instructions: mma.sync of the m16n8 shapes, ldmatrix and stmatrix.
#include <algorithm>

#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {
namespace {

struct Shape {
  std::string_view name;
  MatrixElement element;
  uint8_t depth;
};
// What this machine knows of the table in the PTX ISA.
constexpr Shape kShapes[] = {
    {".m16n8k8", MatrixElement::kHalf, 8},        {".m16n8k16", MatrixElement::kHalf, 16},
    {".m16n8k8", MatrixElement::kBrain, 8},       {".m16n8k16", MatrixElement::kBrain, 16},
    {".m16n8k4", MatrixElement::kTensorFloat, 4}, {".m16n8k8", MatrixElement::kTensorFloat, 8},
    {".m16n8k16", MatrixElement::kSigned8, 16},   {".m16n8k32", MatrixElement::kSigned8, 32},
    {".m16n8k16", MatrixElement::kUnsigned8, 16}, {".m16n8k32", MatrixElement::kUnsigned8, 32}};

bool ElementNamed(std::string_view name, MatrixElement* element) {
  struct Row {
    std::string_view name;
    MatrixElement element;
  };
  static constexpr Row kRows[] = {{".f16", MatrixElement::kHalf},
                                  {".bf16", MatrixElement::kBrain},
                                  {".tf32", MatrixElement::kTensorFloat},
                                  {".s8", MatrixElement::kSigned8},
                                  {".u8", MatrixElement::kUnsigned8}};
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    *element = row.element;
    return true;
  }
  return false;
}

}  // namespace

bool Body::EmitWithList(const Statement& s, Instruction in, const std::vector<uint32_t>& slots) {
  in.whole_warp = true;
  in.target = static_cast<uint32_t>(program_->lists.size());
  program_->lists.insert(program_->lists.end(), slots.begin(), slots.end());
  Emit(s, in);
  return true;
}

// mma.sync.aligned.SHAPE.row.col{.satfinite}.dtype.atype.btype.ctype d, a, b, c;
bool Body::MatrixMultiplyAdd(Statement& s) {
  const bool sync = TakeModifier(s, ".sync"), aligned = TakeModifier(s, ".aligned");
  const bool row = TakeModifier(s, ".row"), layout = TakeModifier(s, ".col") && row;
  const bool saturate = TakeModifier(s, ".satfinite");
  if (!sync || !aligned || !layout || s.modifiers.size() != 5 || !Need(s, 4, 4))
    return Fail(s.where, "'mma' is supported as mma.sync.aligned.SHAPE.row.col.dtype.atype.btype.ctype");
  MatrixElement a = {}, b = {};
  const Shape* shape = nullptr;
  if (ElementNamed(s.modifiers[2], &a) && ElementNamed(s.modifiers[3], &b)) {
    for (const Shape& known : kShapes) {
      if (known.name == s.modifiers[0] && known.element == a) shape = &known;
    }
    const bool bytes = a == MatrixElement::kSigned8 || a == MatrixElement::kUnsigned8;
    const bool both = b == MatrixElement::kSigned8 || b == MatrixElement::kUnsigned8;
    if (a != b && !(bytes && both)) shape = nullptr;
  }
  const std::string_view result = s.modifiers[1];
  const bool integer = shape != nullptr && shape->element >= MatrixElement::kSigned8;
  const bool half = result == ".f16" && shape != nullptr && shape->element == MatrixElement::kHalf;
  const bool fits = integer ? result == ".s32" : half || (result == ".f32" && !saturate);
  if (shape == nullptr || !fits || s.modifiers[4] != result)
    return Fail(s.where, "'mma" + std::string(s.modifiers[0]) + std::string(s.modifiers[2]) + "' is not supported");
  Instruction in;
  in.kind = Kind::kConverge;
  in.instruction_class = kFp32;
  in.latency = 32;
  in.count = shape->depth;
  in.flags = static_cast<uint8_t>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b) << 3 | (saturate ? 64 : 0));
  in.handler = MatrixMultiply(integer ? MatrixAccumulator::kInteger
                              : half  ? MatrixAccumulator::kHalf
                                      : MatrixAccumulator::kFloat);
  const uint32_t each = a == MatrixElement::kTensorFloat ? 1 : a <= MatrixElement::kBrain ? 2 : 4;
  const size_t results = half ? 2 : 4;
  const size_t counts[] = {results, shape->depth / (2 * each), shape->depth / (4 * each), results};
  std::vector<uint32_t> slots;
  for (size_t i = 0; i < 4; ++i) {
    const Operand& o = s.operands[i];
    const std::vector<Operand> single = {o};
    const std::vector<Operand>& elements = o.kind == OperandKind::kVector ? o.elements : single;
    if (elements.size() != counts[i])
      return Fail(o.where, "expected " + std::to_string(counts[i]) + " registers in braces");
    for (const Operand& element : elements) {
      uint32_t slot;
      if (i == 0 ? !Dest(element, Type::kB32, &slot) : !Source(element, Type::kB32, &slot)) return false;
      slots.push_back(slot);
    }
  }
  return EmitWithList(s, in, slots);
}

bool Body::MatrixMoveMany(Statement& s) {
  const bool load = s.opcode == "ldmatrix";
  const bool sync = TakeModifier(s, ".sync"), aligned = TakeModifier(s, ".aligned"), shape = TakeModifier(s, ".m8n8");
  const std::string_view number = TakeOneOf(s, {".x1", ".x2", ".x4"});
  const bool transposed = TakeModifier(s, ".trans");
  const bool shared = !TakeOneOf(s, {".shared", ".shared::cta"}).empty();
  if (!sync || !aligned || !shape || number.empty() || !TakeModifier(s, ".b16"))
    return Fail(s.where,
                "'" + std::string(s.opcode) + "' is supported as .sync.aligned.m8n8.x1|x2|x4{.trans}.shared.b16");
  if (!NoMoreModifiers(s) || !Need(s, 2, 2)) return false;
  Instruction in;
  in.kind = Kind::kConverge;
  in.instruction_class = kShared;
  in.latency = load ? 33 : 4;
  in.count = static_cast<uint8_t>(number[2] - '0');
  in.handler = MatrixMove(load, transposed);
  const Operand& registers = s.operands[load ? 0 : 1];
  if (!AddressOf(s.operands[load ? 1 : 0], shared ? Space::kShared : Space::kGeneric, &in)) return false;
  const std::vector<Operand> single = {registers};
  const std::vector<Operand>& elements = registers.kind == OperandKind::kVector ? registers.elements : single;
  if (elements.size() != in.count)
    return Fail(registers.where, "expected " + std::to_string(in.count) + " registers in braces");
  std::vector<uint32_t> slots(elements.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (load ? !Dest(elements[i], Type::kB32, &slots[i]) : !Source(elements[i], Type::kB32, &slots[i])) return false;
  }
  program_->uses_shared = true;
  if (load) notes_.loads.push_back(static_cast<uint32_t>(program_->code.size()));
  return EmitWithList(s, in, slots);
}

}  // namespace mete::emulator::ptx
