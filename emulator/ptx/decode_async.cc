// Decoding of asynchronous copies and mbarrier objects, of memory order, and of instructions that have no effect on a
// machine that does one thing at a time; and what opcodes ask of .version and .target.
#include <algorithm>

#include "emulator/ptx/body.h"

namespace mete::emulator::ptx {

// cp.async.{ca,cg}.shared.global{.L2::…} [to], [from], bytes{, valid bytes}; commit_group, wait_group n, wait_all
bool Body::CopyAsync(Statement& s) {
  if (!TakeModifier(s, ".async")) return Fail(s.where, "'cp' needs .async; reductions are not supported");
  if (std::find(s.modifiers.begin(), s.modifiers.end(), ".bulk") != s.modifiers.end())
    return Fail(s.where, "bulk and tensor copies are not supported");
  if (TakeModifier(s, ".commit_group") || TakeModifier(s, ".wait_all")) return Need(s, 0, 0) && Nothing(s);
  if (TakeModifier(s, ".wait_group")) return Need(s, 1, 1) && Nothing(s);
  if (TakeModifier(s, ".mbarrier")) {  // the copies are there: this is an arrival, unless .noinc counted it before
    TakeModifier(s, ".arrive");
    const bool counted = TakeModifier(s, ".noinc");
    const bool shared = !TakeOneOf(s, {".shared", ".shared::cta"}).empty();
    if (!TakeModifier(s, ".b64") || !NoMoreModifiers(s) || !Need(s, 1, 1))
      return Fail(s.where, "'cp.async.mbarrier' works on .b64");
    Instruction in;
    in.kind = Kind::kMemory;
    in.instruction_class = kShared;
    // Without .noinc the pending count goes up by one and down again.
    in.handler = BarrierWordOperation(counted ? BarrierWord::kArrive : BarrierWord::kExpect);
    in.b = ConstantSlot(ConstantKind::kValue, 4, 0, counted ? 1 : 0);
    if (!AddressOf(s.operands[0], shared ? Space::kShared : Space::kGeneric, &in)) return false;
    Emit(s, in);
    return true;
  }
  const std::string_view cache = TakeOneOf(s, {".ca", ".cg"});
  const bool to_shared = !TakeOneOf(s, {".shared", ".shared::cta"}).empty(), from_global = TakeModifier(s, ".global");
  TakeOneOf(s, {".L2::64B", ".L2::128B", ".L2::256B"});
  const size_t hint = TakeModifier(s, ".L2::cache_hint") ? 1 : 0;
  if (cache.empty() || !to_shared || !from_global)
    return Fail(s.where, "'cp.async' is supported as .ca or .cg from .global to .shared");
  if (!NoMoreModifiers(s) || !Need(s, 3 + hint, 4 + hint)) return false;
  const Operand& size = s.operands[2];
  const uint64_t bytes = size.kind == OperandKind::kConstant ? size.constant.bits : 0;
  if (!(bytes == 16 || (cache == ".ca" && (bytes == 4 || bytes == 8))))
    return Fail(size.where, "a copy has 4, 8 or 16 bytes");
  Instruction in;
  in.kind = Kind::kMemory;
  in.instruction_class = kLoadStore;
  in.latency = 4;
  in.count = static_cast<uint8_t>(bytes);
  in.handler = AsyncCopy();
  Instruction to;
  if (!AddressOf(s.operands[0], Space::kShared, &to) || !AddressOf(s.operands[1], Space::kGlobal, &in)) return false;
  in.b = to.a;
  if (to.offset != static_cast<int32_t>(to.offset)) return Fail(s.operands[0].where, "a displacement has 32 bits");
  in.target = static_cast<uint32_t>(to.offset);
  in.flags = to.wide_address ? 1 : 0;
  in.c = ConstantSlot(ConstantKind::kValue, 4, 0, bytes);
  if (s.operands.size() - hint == 4) {
    const Operand& valid = s.operands[3];
    if (valid.kind == OperandKind::kRegister && valid.type == Type::kPred)
      return Fail(valid.where, "'cp.async' with a predicate is not supported");
    if (!Source(valid, Type::kU32, &in.c)) return false;
  }
  program_->uses_shared = true;
  Emit(s, in);
  return true;
}

bool Body::MemoryBarrierWord(Statement& s) {
  struct Row {
    std::string_view name;
    BarrierWord operation;
    bool state, count, needs_count;
  };
  static constexpr Row kRows[] = {{".init", BarrierWord::kInit, false, true, true},
                                  {".inval", BarrierWord::kInvalidate, false, false, false},
                                  {".arrive", BarrierWord::kArrive, true, true, false},
                                  {".arrive_drop", BarrierWord::kArriveDrop, true, true, false},
                                  {".expect_tx", BarrierWord::kExpect, false, true, true},
                                  {".complete_tx", BarrierWord::kComplete, false, true, true}};
  TakeOneOf(s, {".release", ".acquire", ".relaxed"});
  TakeOneOf(s, {".cta", ".cluster"});
  const bool shared = !TakeOneOf(s, {".shared", ".shared::cta"}).empty();
  const bool no_complete = TakeModifier(s, ".noComplete");
  Instruction in;
  in.kind = Kind::kMemory;
  in.instruction_class = kShared;
  in.latency = 25;
  const Space space = shared ? Space::kShared : Space::kGeneric;
  if (!TakeModifier(s, ".b64")) return Fail(s.where, "'mbarrier' works on .b64");
  program_->uses_shared = true;
  const std::string_view test = TakeOneOf(s, {".test_wait", ".try_wait"});
  if (!test.empty()) {
    const bool parity = TakeModifier(s, ".parity");
    if (!NoMoreModifiers(s) || !Need(s, 3, test == ".try_wait" ? 4 : 3)) return false;
    in.handler = BarrierWordTest(parity);
    if (!AddressOf(s.operands[1], space, &in)) return false;
    if (!Source(s.operands[2], parity ? Type::kB32 : Type::kB64, &in.b)) return false;
    if (!Dest(s.operands[0], Type::kPred, &in.d)) return false;
    notes_.loads.push_back(static_cast<uint32_t>(program_->code.size()));
    Emit(s, in);
    return true;
  }
  if (TakeModifier(s, ".pending_count")) {
    if (!NoMoreModifiers(s) || !Need(s, 2, 2)) return false;
    in.kind = Kind::kPlain;
    in.handler = BarrierPendingCount();
    if (!Source(s.operands[1], Type::kB64, &in.a) || !Dest(s.operands[0], Type::kB32, &in.d)) return false;
    Emit(s, in);
    return true;
  }
  if (s.modifiers.size() == 2 && s.modifiers[0] == ".arrive" && s.modifiers[1] == ".expect_tx") {
    s.modifiers.clear();
    if (!Need(s, 3, 3)) return false;
    in.handler = BarrierWordOperation(BarrierWord::kArriveExpect);
    if (!AddressOf(s.operands[1], space, &in) || !Source(s.operands[2], Type::kU32, &in.b)) return false;
    if (!Dest(s.operands[0], Type::kB64, &in.d)) return false;
    Emit(s, in);
    return true;
  }
  const Row* row = nullptr;
  for (const Row& r : kRows) {
    if (s.modifiers.size() == 1 && r.name == s.modifiers[0]) row = &r;
  }
  if (row == nullptr) return Fail(s.where, "this form of 'mbarrier' is not supported");
  const size_t first = row->state ? 1 : 0;
  if (!Need(s, first + 1 + (row->needs_count ? 1 : 0), first + 1 + (row->count ? 1 : 0))) return false;
  if (no_complete && s.operands.size() != 3) return Fail(s.where, "'.noComplete' needs a count");
  in.handler = BarrierWordOperation(row->operation);
  if (!AddressOf(s.operands[first], space, &in)) return false;
  in.b = ConstantSlot(ConstantKind::kValue, 4, 0, 1);
  if (s.operands.size() == first + 2 && !Source(s.operands[first + 1], Type::kU32, &in.b)) return false;
  if (row->state && !Dest(s.operands[0], Type::kB64, &in.d)) return false;
  Emit(s, in);
  return true;
}

// The interpreter runs one instruction of one warp at a time: every order is kept already. Only the slot counts.
bool Body::MemoryOrder(Statement& s) {
  static constexpr std::string_view kKnown[] = {".cta",
                                                ".gl",
                                                ".sys",
                                                ".sc",
                                                ".acq_rel",
                                                ".gpu",
                                                ".cluster",
                                                ".global",
                                                ".local",
                                                ".L1",
                                                ".L2",
                                                ".acquire",
                                                ".release",
                                                ".mbarrier_init",
                                                ".proxy",
                                                ".alias",
                                                ".async",
                                                ".const",
                                                ".async.global",
                                                ".L2::evict_last",
                                                ".L2::evict_normal",
                                                ".sync_restrict::shared::cta",
                                                ".shared::cta",
                                                ".param",
                                                ".128",
                                                ".L2::128B"};
  for (const std::string_view modifier : s.modifiers) {
    if (std::find(std::begin(kKnown), std::end(kKnown), modifier) == std::end(kKnown))
      return Fail(s.where, "'" + std::string(s.opcode) + "' does not take '" + std::string(modifier) + "'");
  }
  s.modifiers.clear();
  const bool prefetch = s.opcode != "membar" && s.opcode != "fence";
  if (!Need(s, prefetch ? 1 : 0, s.opcode == "discard" || s.opcode == "applypriority" ? 2 : prefetch ? 1 : 0))
    return false;
  return Nothing(s);
}

bool Body::Nothing(Statement& s) {
  static constexpr std::string_view kKnown[] = {".launch_dependents", ".wait", ".inc", ".dec", ".sync",
                                                ".aligned",           ".u32",  ".mask"};
  for (const std::string_view modifier : s.modifiers) {
    if (std::find(std::begin(kKnown), std::end(kKnown), modifier) == std::end(kKnown))
      return Fail(s.where, "'" + std::string(s.opcode) + "' does not take '" + std::string(modifier) + "'");
  }
  if (!Need(s, 0, 2)) return false;
  Instruction in;
  in.handler = Move(2);  // nothing, from the zero slot to the trash
  in.instruction_class = kLoadStore;
  Emit(s, in);
  return true;
}

bool Body::NotSupported(Statement& s) {
  return Fail(s.where, "'" + std::string(s.opcode) + "' is not supported by the emulated driver");
}

namespace {

// The PTX ISA's "PTX ISA notes" and "target ISA notes": opcode, a modifier it is about (or any), least .version and
// sm_.
struct Requirement {
  std::string_view opcode, modifier;
  uint32_t version, target;
};
constexpr Requirement kRequirements[] = {{"activemask", "", 62, 30},
                                         {"applypriority", "", 74, 80},
                                         {"bmsk", "", 76, 70},
                                         {"brx", "", 60, 30},
                                         {"copysign", "", 20, 20},
                                         {"cp", ".async", 70, 80},
                                         {"discard", "", 74, 80},
                                         {"dp2a", "", 50, 61},
                                         {"dp4a", "", 50, 61},
                                         {"elect", "", 80, 90},
                                         {"ex2", ".f16", 70, 75},
                                         {"ex2", ".f16x2", 70, 75},
                                         {"ex2", ".bf16", 78, 90},
                                         {"ex2", ".bf16x2", 78, 90},
                                         {"fence", "", 60, 70},
                                         {"fma", ".bf16", 70, 80},
                                         {"fma", ".bf16x2", 70, 80},
                                         {"fma", ".f16", 42, 53},
                                         {"fns", "", 60, 30},
                                         {"griddepcontrol", "", 78, 90},
                                         {"ldmatrix", "", 65, 75},
                                         {"lop3", "", 43, 50},
                                         {"match", "", 60, 70},
                                         {"mbarrier", "", 70, 80},
                                         {"mma", "", 65, 75},
                                         {"mma", ".m16n8k16", 70, 80},
                                         {"mma", ".m16n8k32", 70, 80},
                                         {"mma", ".bf16", 70, 80},
                                         {"mma", ".tf32", 70, 80},
                                         {"nanosleep", "", 63, 70},
                                         {"redux", "", 70, 80},
                                         {"setmaxnreg", "", 80, 90},
                                         {"shf", "", 31, 32},
                                         {"stmatrix", "", 78, 90},
                                         {"szext", "", 76, 70},
                                         {"tanh", "", 70, 75},
                                         {"tanh", ".bf16", 78, 90},
                                         {"atom", ".f64", 50, 60},
                                         {"red", ".f64", 50, 60},
                                         {"atom", ".f16", 63, 70},
                                         {"atom", ".f16x2", 62, 60},
                                         {"atom", ".b16", 63, 70},
                                         {"atom", ".bf16", 78, 90},
                                         {"atom", ".bf16x2", 78, 90},
                                         {"red", ".f16", 63, 70},
                                         {"red", ".f16x2", 62, 60},
                                         {"red", ".bf16", 78, 90},
                                         {"red", ".bf16x2", 78, 90},
                                         {"cvt", ".bf16", 70, 80},
                                         {"cvt", ".bf16x2", 70, 80},
                                         {"cvt", ".f16x2", 70, 80},
                                         {"cvt", ".tf32", 70, 80},
                                         {"cvt", ".pack", 65, 72},
                                         {"mbarrier", ".try_wait", 78, 90},
                                         {"mbarrier", ".expect_tx", 80, 90}};

}  // namespace

bool Body::HasNeeds(std::string_view opcode) {
  return std::any_of(std::begin(kRequirements), std::end(kRequirements),
                     [&](const Requirement& r) { return r.opcode == opcode; });
}

bool Body::TargetHas(const Statement& s) {
  const Module& module = parser_->module();
  for (const Requirement& row : kRequirements) {
    if (row.opcode != s.opcode) continue;
    if (!row.modifier.empty() && std::find(s.modifiers.begin(), s.modifiers.end(), row.modifier) == s.modifiers.end())
      continue;
    if (module.isa_version() < row.version) {
      return Fail(s.where, "'" + std::string(s.opcode) + std::string(row.modifier) + "' needs .version " +
                               std::to_string(row.version / 10) + "." + std::to_string(row.version % 10));
    }
    if (module.target() < row.target)
      return Fail(s.where, "'" + std::string(s.opcode) + std::string(row.modifier) + "' needs .target sm_" +
                               std::to_string(row.target));
  }
  return true;
}

}  // namespace mete::emulator::ptx
