#include "emulator/ptx/loops.h"

#include <algorithm>
#include <optional>
#include <set>

#include "emulator/ptx/handlers.h"

namespace mete::emulator::ptx {
namespace {

constexpr size_t kMaximumLoops = 4096;
constexpr size_t kMaximumAmounts = 4;

// What a register holds, in terms of what another held when the turn began.
struct Value {
  bool known = true;
  uint32_t base = 0;
  std::vector<std::pair<uint32_t, bool>> amounts;
};

struct Comparison {
  Value a, b;
  uint32_t a_slot = 0, b_slot = 0;
  Compare compare = Compare::kEq;
  Type type = Type::kNone;
};

Compare Opposite(Compare c) {
  switch (c) {
    case Compare::kEq: return Compare::kNe;
    case Compare::kNe: return Compare::kEq;
    case Compare::kLt: return Compare::kGe;
    case Compare::kLe: return Compare::kGt;
    case Compare::kGt: return Compare::kLe;
    default: return Compare::kLt;
  }
}
Compare Swapped(Compare c) {
  switch (c) {
    case Compare::kLt: return Compare::kGt;
    case Compare::kLe: return Compare::kGe;
    case Compare::kGt: return Compare::kLt;
    case Compare::kGe: return Compare::kLe;
    default: return c;
  }
}

class LoopReader {
 public:
  LoopReader(Program* program, const BodyNotes& notes, const std::unordered_map<uint32_t, uint32_t>& slot_bytes)
      : program_(*program), notes_(notes), slot_bytes_(slot_bytes) {}

  bool Read(uint32_t head, uint32_t back);

 private:
  Value ValueOf(uint32_t slot) const {
    const auto known = values_.find(slot);
    if (known != values_.end()) return known->second;
    return Value{true, slot, {}};
  }
  bool Invariant(uint32_t slot) const { return written_.count(slot) == 0; }
  bool Shape(uint32_t head, uint32_t back);  // marks what does not run in each turn
  void Follow(uint32_t pc, bool always);
  bool Exit(uint32_t pc, bool goes_on_when_taken);
  bool Keep(uint32_t head, uint32_t back);

  Program& program_;
  const BodyNotes& notes_;
  const std::unordered_map<uint32_t, uint32_t>& slot_bytes_;
  std::vector<bool> conditional_;
  std::set<uint32_t> written_;
  std::unordered_map<uint32_t, Value> values_;
  std::unordered_map<uint32_t, Comparison> comparisons_;  // by predicate
  std::vector<std::pair<Comparison, bool>> exits_;        // goes on while the comparison is this
  bool irregular_ = false;
  size_t fact_ = 0, write_ = 0;
};

bool LoopReader::Shape(uint32_t head, uint32_t back) {
  std::vector<int32_t> change(back - head +
                              2);  // of how many branches go around an instruction, or come back before it
  const auto mark = [&](uint32_t from, uint32_t to) {
    ++change[from - head];
    --change[to - head];
  };
  for (uint32_t pc = head; pc < back; ++pc) {
    const Instruction& in = program_.code[pc];
    if (in.kind == Kind::kReturn || in.kind == Kind::kExit || in.kind == Kind::kBranchIndexed) return false;
    if (in.kind != Kind::kBranch || in.target > back || in.target < head) continue;
    if (in.target > pc) {
      mark(pc + 1, in.target);
      irregular_ = true;
    } else {
      mark(in.target, pc + 1);
      irregular_ |= in.offset == 0;
    }
  }
  conditional_.assign(back - head + 1, false);
  int32_t around = 0;
  for (uint32_t pc = head; pc <= back; ++pc) {
    around += change[pc - head];
    conditional_[pc - head] = around != 0;
  }
  return true;
}

void LoopReader::Follow(uint32_t pc, bool always) {
  while (fact_ < notes_.facts.size() && notes_.facts[fact_].pc < pc) ++fact_;
  const Fact* fact = fact_ < notes_.facts.size() && notes_.facts[fact_].pc == pc ? &notes_.facts[fact_] : nullptr;
  if (!always) fact = nullptr;
  Value result;
  result.known = false;
  if (fact != nullptr && fact->kind == Fact::Kind::kMove) {
    result = ValueOf(fact->a);
  } else if (fact != nullptr && fact->kind != Fact::Kind::kCompare) {
    const bool subtract = fact->kind == Fact::Kind::kSubtract;
    if (Invariant(fact->b)) {
      result = ValueOf(fact->a);
      result.amounts.emplace_back(fact->b, subtract);
    } else if (!subtract && Invariant(fact->a)) {
      result = ValueOf(fact->b);
      result.amounts.emplace_back(fact->a, false);
    }
    if (!result.known || result.amounts.size() > kMaximumAmounts) result = Value{false, 0, {}};
  }
  std::optional<Comparison> comparison;
  if (fact != nullptr && fact->kind == Fact::Kind::kCompare) {
    comparison = Comparison{ValueOf(fact->a), ValueOf(fact->b), fact->a, fact->b, static_cast<Compare>(fact->compare),
                            fact->type};
  }
  while (write_ < notes_.writes.size() && notes_.writes[write_].first < pc) ++write_;
  for (; write_ < notes_.writes.size() && notes_.writes[write_].first == pc; ++write_) {
    const uint32_t slot = notes_.writes[write_].second;
    comparisons_.erase(slot);
    if (fact != nullptr && fact->d == slot && fact->kind != Fact::Kind::kCompare)
      values_[slot] = result;
    else
      values_[slot] = Value{false, 0, {}};
    if (comparison.has_value() && fact->d == slot) comparisons_[slot] = *comparison;
  }
}

bool LoopReader::Exit(uint32_t pc, bool goes_on_when_taken) {
  const Instruction& in = program_.code[pc];
  const auto known = comparisons_.find(in.guard);
  if (in.guard == kZeroSlot || known == comparisons_.end()) return false;
  exits_.emplace_back(known->second, goes_on_when_taken != in.guard_negated);
  return true;
}

bool LoopReader::Keep(uint32_t head, uint32_t back) {
  if (exits_.empty()) return false;
  Loop loop;
  loop.head = head;
  loop.back = back;
  loop.irregular = irregular_;
  for (const auto& [slot, value] : values_) {
    const auto bytes = slot_bytes_.find(slot);
    if (!value.known || value.base != slot || value.amounts.empty() || bytes == slot_bytes_.end()) continue;
    if (bytes->second != 4 && bytes->second != 8) continue;
    loop.steps.push_back({slot, bytes->second, value.amounts});
  }
  for (const auto& [comparison, while_true] : exits_) {
    LoopExit exit;
    Compare compare = comparison.compare;
    const Value* value = &comparison.a;
    uint32_t bound = comparison.b_slot;
    if (!Invariant(bound)) {
      value = &comparison.b;
      bound = comparison.a_slot;
      compare = Swapped(compare);
    }
    if (!Invariant(bound) || !value->known || value->amounts.size() > kMaximumAmounts) return false;
    const auto step =
        std::find_if(loop.steps.begin(), loop.steps.end(), [&](const LoopStep& s) { return s.slot == value->base; });
    if (step == loop.steps.end()) return false;
    exit.compare = static_cast<uint8_t>(while_true ? compare : Opposite(compare));
    exit.type = comparison.type;
    exit.step = static_cast<uint32_t>(step - loop.steps.begin());
    exit.offset = value->amounts;
    exit.bound = bound;
    loop.exits.push_back(std::move(exit));
  }
  program_.loops.push_back(std::move(loop));
  program_.code[back].offset = static_cast<int64_t>(program_.loops.size());
  return true;
}

bool LoopReader::Read(uint32_t head, uint32_t back) {
  if (!Shape(head, back)) return false;
  const auto from = std::lower_bound(notes_.writes.begin(), notes_.writes.end(), std::make_pair(head, 0u));
  for (auto it = from; it != notes_.writes.end() && it->first <= back; ++it) written_.insert(it->second);
  write_ = static_cast<size_t>(from - notes_.writes.begin());
  fact_ = static_cast<size_t>(std::lower_bound(notes_.facts.begin(), notes_.facts.end(), head,
                                               [](const Fact& f, uint32_t pc) { return f.pc < pc; }) -
                              notes_.facts.begin());
  for (uint32_t pc = head; pc <= back; ++pc) {
    const Instruction& in = program_.code[pc];
    const bool always = !conditional_[pc - head];
    if (in.kind == Kind::kBranch && (pc == back || in.target > back || in.target < head)) {
      if (pc == back && in.guard == kZeroSlot) continue;
      if (!always || !Exit(pc, pc == back)) return false;
    }
    Follow(pc, always && in.guard == kZeroSlot);
  }
  return Keep(head, back);
}

}  // namespace

void FindCountedLoops(Program* program, const BodyNotes& notes,
                      const std::unordered_map<uint32_t, uint32_t>& slot_bytes) {
  // Of several ways back to one head the last one closes the loop. Inner loops first.
  std::unordered_map<uint32_t, uint32_t> backs;
  for (uint32_t pc = 0; pc < program->code.size(); ++pc) {
    const Instruction& in = program->code[pc];
    if (in.kind == Kind::kBranch && in.target <= pc) backs[in.target] = pc;
  }
  std::vector<std::pair<uint32_t, uint32_t>> loops(backs.begin(), backs.end());
  std::sort(loops.begin(), loops.end(), [](const auto& x, const auto& y) {
    const uint32_t a = x.second - x.first, b = y.second - y.first;
    return a != b ? a < b : x < y;
  });
  if (loops.size() > kMaximumLoops) loops.resize(kMaximumLoops);
  size_t work = 64 * program->code.size() + (size_t{1} << 20);  // deep nests of large loops are left to be interpreted
  for (const auto& [head, back] : loops) {
    const size_t length = back - head + 1;
    if (length > work) break;
    work -= length;
    LoopReader(program, notes, slot_bytes).Read(head, back);
  }
}

bool SteeredByMemory(const Program& program, const BodyNotes& notes) {
  std::vector<bool> tainted(program.frame_bytes / kSlotBytes + 1);
  constexpr int kPasses = 16;
  for (int pass = 0;; ++pass) {
    if (pass == kPasses) return true;  // a chain longer than that: assume so
    bool changed = false;
    size_t load = 0, read = 0, write = 0;
    while (write < notes.writes.size()) {
      const uint32_t pc = notes.writes[write].first;
      while (load < notes.loads.size() && notes.loads[load] < pc) ++load;
      while (read < notes.reads.size() && notes.reads[read].first < pc) ++read;
      bool taint = load < notes.loads.size() && notes.loads[load] == pc;
      for (; read < notes.reads.size() && notes.reads[read].first == pc; ++read)
        taint |= tainted[notes.reads[read].second / kSlotBytes];
      for (; write < notes.writes.size() && notes.writes[write].first == pc; ++write) {
        const size_t slot = notes.writes[write].second / kSlotBytes;
        if (!taint || tainted[slot]) continue;
        tainted[slot] = true;
        changed = true;
      }
    }
    if (!changed) break;
  }
  // The innermost loop's end at each place: a branch beyond it leaves that loop.
  std::vector<std::pair<uint32_t, uint32_t>> loops;
  for (uint32_t pc = 0; pc < program.code.size(); ++pc) {
    const Instruction& in = program.code[pc];
    if (in.kind == Kind::kBranch && in.target <= pc) loops.emplace_back(in.target, pc);
  }
  std::sort(loops.begin(), loops.end());
  std::multiset<uint32_t> open;
  size_t next = 0;
  for (uint32_t pc = 0; pc < program.code.size(); ++pc) {
    for (; next < loops.size() && loops[next].first <= pc; ++next) open.insert(loops[next].second);
    while (!open.empty() && *open.begin() < pc) open.erase(open.begin());
    const Instruction& in = program.code[pc];
    if (open.empty() || in.guard == kZeroSlot || !tainted[in.guard / kSlotBytes]) continue;
    if (in.kind == Kind::kReturn || in.kind == Kind::kExit) return true;
    if (in.kind == Kind::kBranch && (in.target <= pc || in.target > *open.begin())) return true;
  }
  return false;
}

}  // namespace mete::emulator::ptx
