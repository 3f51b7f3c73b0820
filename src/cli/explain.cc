#include "cli/explain.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "base/table.h"
#include "base/text.h"
#include "cli/commands.h"
#include "gpu/catalogue.h"
#include "gpu/promises.h"

namespace mete::cli {
namespace {

using gpu::Board;
using gpu::Catalogue;
using gpu::Mechanism;
using gpu::MechanismNotes;
using gpu::Promise;
using gpu::PromiseTable;
using gpu::Variant;
using gpu::Verdict;

using Subject = std::variant<const Board*, Promise, Mechanism, const Variant*>;

StatusOr<Subject> FindSubject(std::string_view name) {
  const std::string lower = ToLower(name);
  if (const auto promise = gpu::ParsePromise(lower); promise.ok()) return Subject(*promise);
  if (const auto mechanism = gpu::ParseMechanism(lower); mechanism.ok()) return Subject(*mechanism);
  if (const auto variant = PromiseTable::BuiltIn().Find(lower); variant.ok()) return Subject(*variant);
  if (const auto board = Catalogue::BuiltIn().Find(name); board.ok()) return Subject(*board);
  std::vector<std::string> names;
  for (Promise promise : gpu::Promises()) names.emplace_back(Name(promise));
  for (Mechanism mechanism : gpu::kMechanisms) names.emplace_back(Name(mechanism));
  for (const Variant& variant : PromiseTable::BuiltIn().variants()) names.push_back(variant.name);
  for (const Board& board : Catalogue::BuiltIn().boards()) names.push_back(ShortName(board));
  const auto near = NearestNames(name, names, 5);
  if (near.empty()) return NoSuch("nothing is called \"{}\"; `mete explain` lists what can be explained", name);
  return NoSuch("nothing is called \"{}\"; near it: {}", name, JoinNames(near, "and"));
}

// Collects the source ids that a text used, and prints what they mean.
class SourceList {
 public:
  std::string Mark(const std::vector<std::string>& ids) {
    for (const std::string& id : ids) {
      if (std::find(used_.begin(), used_.end(), id) == used_.end()) used_.push_back(id);
    }
    std::string text;
    for (const std::string& id : ids) text += (text.empty() ? "" : ", ") + id;
    return text;
  }
  // `meaning` tells what an id means.
  template <typename F>
  std::string Text(size_t width, F meaning) const {
    Table table({{"source"}, {"is", Align::kLeft, true}});
    for (const std::string& id : used_) table.AddRow({id, meaning(id)});
    return "\n" + table.Render(width);
  }

 private:
  std::vector<std::string> used_;
};

std::string Paragraph(std::string_view text, size_t width) {
  std::string lines;
  for (const std::string& line : Wrap(text, width)) lines += line + "\n";
  return lines;
}

std::string Why(const Verdict& verdict) {
  if (verdict.condition == gpu::Condition::kNone) return verdict.why;
  const std::string condition = PromiseTable::BuiltIn().Meaning(verdict.condition);
  return verdict.condition == gpu::Condition::kUnchecked
             ? fmt::format("{} ({}: counts as not kept)", verdict.why, condition)
             : fmt::format("{} (if {})", verdict.why, condition);
}

struct FieldRow {
  std::string field, value, key;  // `key` finds sources and estimates
};

std::vector<FieldRow> Fields(const Board& board) {
  const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
  const std::string pcie =
      board.pcie_gen == 0 ? "not PCIe" : fmt::format("generation {}, {} lanes", board.pcie_gen, board.pcie_lanes);
  const std::string mps = board.mps ? fmt::format("yes, {} clients ({} up to CUDA 13.0){}", board.mps_clients,
                                                  board.mps_clients_through_cuda_13_0,
                                                  board.mps_static_partitions ? ", static partitions" : "")
                                    : "no";
  const std::string vgpu = !board.vgpu_c_series ? "none"
                           : board.vgpu_fractional
                               ? fmt::format("{}-…C, time-sliced fractions", board.vgpu_type_prefix)
                               : fmt::format("{}-…C, whole GPU or MIG-backed", board.vgpu_type_prefix);
  return {{"architecture", board.architecture, "compute_capability"},
          {"compute capability", fmt::format("{}.{}", board.compute_major, board.compute_minor), "compute_capability"},
          {"SMs", std::to_string(board.sm_count), "sm_count"},
          {"memory", ToString(board.memory), "memory_mib"},
          {"memory bandwidth", fmt::format("{} GB/s", board.memory_bandwidth_gbs), "memory_bandwidth_gbs"},
          {"L2 cache", fmt::format("{} MiB", board.l2_mib), "l2_mib"},
          {"host link", pcie, "pcie"},
          {"power limit", fmt::format("{} W", board.max_power_w), "max_power_w"},
          {"memory of one context", ToString(board.context_memory), "context_memory_mib"},
          {"slice classes", yes(board.timeslice_policy), "timeslice"},
          {"MPS", mps, "mps"},
          {"MIG", yes(board.mig), "mig"},
          {"vGPU compute types", vgpu, "vgpu"}};
}

bool Estimated(const Board& board, const std::string& key) {
  return std::find(board.estimated.begin(), board.estimated.end(), key) != board.estimated.end();
}

std::vector<std::string> SourcesOf(const Board& board, const std::string& key) {
  const auto found = board.sources.find(key);
  return found == board.sources.end() ? std::vector<std::string>() : found->second;
}

std::string BoardText(const Board& board, size_t width) {
  SourceList sources;
  Table table({{"field"}, {"value", Align::kLeft, true}, {"source"}});
  for (const FieldRow& row : Fields(board)) {
    table.AddRow({row.field, row.value + (Estimated(board, row.key) ? " (estimate)" : ""),
                  sources.Mark(SourcesOf(board, row.key))});
  }
  return fmt::format("{} (board {})\n\n{}{}", board.nvml_name, board.id, table.Render(width),
                     sources.Text(width, [](const std::string& id) { return Catalogue::BuiltIn().Source(id); }));
}

std::string PromiseText(Promise promise, size_t width) {
  const PromiseTable& table = PromiseTable::BuiltIn();
  const gpu::PromiseNote& note = table.Note(promise);
  std::string text = Paragraph(fmt::format("{}: {}.", Name(promise), note.meaning), width);
  if (!note.asked_with.empty()) text += fmt::format("Asked for with `mete run {}`.\n", note.asked_with);
  SourceList sources;
  Table rows({{"mechanism"}, {"keeps it"}, {"why", Align::kLeft, true}, {"source"}});
  for (const Variant& variant : table.variants()) {
    const Verdict& verdict = variant.Of(promise);
    rows.AddRow({variant.name, std::string(Name(verdict.value)), Why(verdict), sources.Mark(verdict.sources)});
  }
  text += "\n" + rows.Render(width) + "\n";
  Table values({{""}, {"", Align::kLeft, true}});
  for (gpu::Value value : {gpu::Value::kConditional, gpu::Value::kCapOnly}) {
    values.AddRow({std::string(Name(value)), table.Meaning(value)});
  }
  text += values.Render(width);
  return text + sources.Text(width, [&table](const std::string& id) { return table.Source(id); });
}

std::string VariantText(const Variant& variant, size_t width) {
  const PromiseTable& table = PromiseTable::BuiltIn();
  SourceList sources;
  Table rows({{"promise"}, {"keeps it"}, {"why", Align::kLeft, true}, {"source"}});
  for (Promise promise : gpu::Promises()) {
    const Verdict& verdict = variant.Of(promise);
    rows.AddRow(
        {std::string(Name(promise)), std::string(Name(verdict.value)), Why(verdict), sources.Mark(verdict.sources)});
  }
  Table properties({{"property"}, {"value", Align::kLeft, true}, {"why", Align::kLeft, true}, {"source"}});
  for (const auto& [name, property] : variant.properties) {
    properties.AddRow({name, property.value, property.why, sources.Mark(property.sources)});
  }
  return Paragraph(fmt::format("{}: {}.", variant.name, variant.summary), width) + "\n" + rows.Render(width) + "\n" +
         properties.Render(width) + sources.Text(width, [&table](const std::string& id) { return table.Source(id); });
}

std::string MechanismText(Mechanism mechanism, size_t width) {
  const MechanismNotes& notes = MechanismNotes::BuiltIn();
  const gpu::MechanismNote& note = notes[mechanism];
  SourceList sources;
  std::string text =
      Paragraph(fmt::format("{}: {}.", Name(mechanism), note.summary), width) + Paragraph(note.how, width);
  Table facts({{"fact", Align::kLeft, true}, {"source"}});
  for (const gpu::Fact& fact : note.facts) facts.AddRow({fact.text, sources.Mark(fact.sources)});
  text +=
      "\n" + facts.Render(width) + sources.Text(width, [&notes](const std::string& id) { return notes.Source(id); });
  const auto variants = PromiseTable::BuiltIn().Of(mechanism);
  if (variants.size() == 1) return text + "\nPromises\n" + VariantText(*variants.front(), width);
  Table ways({{""}, {"", Align::kLeft, true}});
  std::vector<Column> columns{{"promise"}};
  for (const Variant* variant : variants) {
    ways.AddRow({variant->name, variant->summary});
    columns.push_back({variant->name});
  }
  Table rows(columns);
  for (Promise promise : gpu::Promises()) {
    std::vector<std::string> cells{std::string(Name(promise))};
    for (const Variant* variant : variants) cells.emplace_back(Name(variant->Of(promise).value));
    rows.AddRow(std::move(cells));
  }
  return text + "\nWays to set it up; `mete explain NAME` gives the reasons\n" + ways.Render(width, 2) + "\n" +
         rows.Render(width);
}

constexpr std::string_view kNoBreak = "\u00a0";

std::string Replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string Contents(size_t width) {
  Table promises({{""}, {"", Align::kLeft, true}});
  for (Promise promise : gpu::Promises()) {
    promises.AddRow({std::string(Name(promise)), PromiseTable::BuiltIn().Note(promise).meaning});
  }
  Table mechanisms({{""}, {"", Align::kLeft, true}});
  for (Mechanism mechanism : gpu::kMechanisms) {
    mechanisms.AddRow({std::string(Name(mechanism)), MechanismNotes::BuiltIn()[mechanism].summary});
    const auto variants = PromiseTable::BuiltIn().Of(mechanism);
    for (const Variant* variant : variants) {
      if (variants.size() > 1) mechanisms.AddRow({"  " + variant->name, variant->summary});
    }
  }
  std::vector<std::string> boards;
  for (const Board& board : Catalogue::BuiltIn().boards()) boards.push_back(Replaced(ShortName(board), " ", kNoBreak));
  std::string text = "`mete explain NAME` explains\n\na promise\n" + promises.Render(width, 2) + "\na mechanism\n" +
                     mechanisms.Render(width, 2) + "\na board\n";
  for (const std::string& line : Wrap(JoinNames(boards, "and"), width - 2))
    text += "  " + Replaced(line, kNoBreak, " ") + "\n";
  return text;
}

Json VerdictJson(const Verdict& verdict) {
  Json json{{"value", Name(verdict.value)}, {"why", verdict.why}};
  if (verdict.condition != gpu::Condition::kNone)
    json["condition"] = PromiseTable::BuiltIn().Meaning(verdict.condition);
  json["sources"] = Json::object();
  for (const std::string& id : verdict.sources) json["sources"][id] = PromiseTable::BuiltIn().Source(id);
  return json;
}

Json VariantJson(const Variant& variant) {
  Json json{{"variant", variant.name}, {"mechanism", Name(variant.mechanism)}, {"summary", variant.summary}};
  for (Promise promise : gpu::Promises())
    json["promises"][std::string(Name(promise))] = VerdictJson(variant.Of(promise));
  for (const auto& [name, property] : variant.properties) {
    Json one{{"value", property.value}, {"why", property.why}, {"sources", Json::object()}};
    for (const std::string& id : property.sources) one["sources"][id] = PromiseTable::BuiltIn().Source(id);
    json["properties"][name] = std::move(one);
  }
  return json;
}

Json MechanismJson(Mechanism mechanism) {
  const MechanismNotes& notes = MechanismNotes::BuiltIn();
  Json json{{"mechanism", Name(mechanism)}, {"summary", notes[mechanism].summary}, {"how", notes[mechanism].how}};
  for (const gpu::Fact& fact : notes[mechanism].facts) {
    Json one{{"text", fact.text}, {"sources", Json::object()}};
    for (const std::string& id : fact.sources) one["sources"][id] = notes.Source(id);
    json["facts"].push_back(std::move(one));
  }
  for (const Variant* variant : PromiseTable::BuiltIn().Of(mechanism))
    json["variants"].push_back(VariantJson(*variant));
  return json;
}

Json PromiseJson(Promise promise) {
  const PromiseTable& table = PromiseTable::BuiltIn();
  Json json{{"promise", Name(promise)}, {"meaning", table.Note(promise).meaning}};
  if (!table.Note(promise).asked_with.empty()) json["asked_with"] = table.Note(promise).asked_with;
  for (const Variant& variant : table.variants()) json["variants"][variant.name] = VerdictJson(variant.Of(promise));
  return json;
}

Json BoardJson(const Board& board) {
  Json json{{"board", board.id}, {"name", board.nvml_name}};
  for (const FieldRow& row : Fields(board)) {
    Json one{{"value", row.value}, {"estimate", Estimated(board, row.key)}, {"sources", Json::object()}};
    for (const std::string& id : SourcesOf(board, row.key)) one["sources"][id] = Catalogue::BuiltIn().Source(id);
    json["fields"][row.field] = std::move(one);
  }
  return json;
}

Json ContentsJson() {
  Json json{{"promises", Json::array()},
            {"mechanisms", Json::array()},
            {"variants", Json::array()},
            {"boards", Json::array()}};
  for (Promise promise : gpu::Promises()) json["promises"].push_back(Name(promise));
  for (Mechanism mechanism : gpu::kMechanisms) json["mechanisms"].push_back(Name(mechanism));
  for (const Variant& variant : PromiseTable::BuiltIn().variants()) json["variants"].push_back(variant.name);
  for (const Board& board : Catalogue::BuiltIn().boards()) json["boards"].push_back(ShortName(board));
  return json;
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

StatusOr<std::string> ExplainText(std::string_view subject, size_t width) {
  if (subject.empty()) return Contents(width);
  METE_ASSIGN_OR_RETURN(const Subject found, FindSubject(subject));
  return std::visit(Overloaded{[width](const Board* board) { return BoardText(*board, width); },
                               [width](Promise promise) { return PromiseText(promise, width); },
                               [width](Mechanism mechanism) { return MechanismText(mechanism, width); },
                               [width](const Variant* variant) { return VariantText(*variant, width); }},
                    found);
}

StatusOr<Json> ExplainJson(std::string_view subject) {
  if (subject.empty()) return ContentsJson();
  METE_ASSIGN_OR_RETURN(const Subject found, FindSubject(subject));
  return std::visit(Overloaded{[](const Board* board) { return BoardJson(*board); },
                               [](Promise promise) { return PromiseJson(promise); },
                               [](Mechanism mechanism) { return MechanismJson(mechanism); },
                               [](const Variant* variant) { return VariantJson(*variant); }},
                    found);
}

namespace {

StatusOr<int> RunExplain(const std::vector<std::string>& words) {
  CLI::App app(
      "Explains a board, a promise or a mechanism, with sources. Without a name: lists what can be explained.");
  Common common;
  std::vector<std::string> subject;
  app.add_option("name", subject, "A board (T4), a promise (memory-quota) or a mechanism (mps, mps-limits)");
  AddJson(app, common);
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "explain", words));
  if (!go) return 0;
  std::string name;  // boards have names of several words: no need to quote them
  for (const std::string& word : subject) name += (name.empty() ? "" : " ") + word;
  if (common.json) {
    METE_ASSIGN_OR_RETURN(const Json json, ExplainJson(name));
    PrintJson(json);
  } else {
    METE_ASSIGN_OR_RETURN(const std::string text, ExplainText(name, TerminalWidth(STDOUT_FILENO)));
    Print(text);
  }
  return 0;
}

}  // namespace

const Command kExplain{"explain", "what a board, a promise or a mechanism is, with sources", Group::kLook, RunExplain};

}  // namespace mete::cli
