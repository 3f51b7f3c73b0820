#include "gpu/yaml_reader.h"

#include <charconv>
#include <utility>

namespace mete::gpu {

void YamlProblem::Add(const YAML::Node& at, std::string_view what) {
  if (!status_.ok()) return;
  const int line = at.IsDefined() ? at.Mark().line + 1 : 0;
  status_ = line > 0 ? Usage("{}, line {}: {}", document_, line, what) : Usage("{}: {}", document_, what);
}

StatusOr<YAML::Node> LoadYaml(std::string_view text, std::string_view document) {
  constexpr size_t kLargest = size_t{1} << 20;
  if (text.size() > kLargest) return Usage("{}: larger than 1 MiB", document);
  try {
    return YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    return Usage("{}, line {}: not valid YAML: {}", document, error.mark.line + 1, error.msg);
  }
}

YamlMap::YamlMap(const YAML::Node& node, YamlProblem& problem) : node_(node), problem_(problem) {
  if (!node.IsDefined() || !node.IsMap()) {
    if (problem.ok()) problem.Add(node, "a mapping is expected here");
    return;
  }
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      problem.Add(node, "a key is not plain text");
      continue;
    }
    const std::string& key = entry.first.Scalar();
    if (!entries_.emplace(key, Entry{entry.second}).second) problem.Add(node, fmt::format("\"{}\" appears twice", key));
  }
}

YAML::Node YamlMap::Take(std::string_view key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    problem_.Add(node_, fmt::format("\"{}\" is missing", key));
    return YAML::Node(YAML::NodeType::Undefined);
  }
  found->second.read = true;
  return found->second.value;
}

std::string YamlMap::Text(std::string_view key) {
  const YAML::Node value = Take(key);
  if (!value.IsDefined()) return {};
  if (!value.IsScalar() || value.Scalar().empty()) {
    problem_.Add(node_, fmt::format("\"{}\" must be text", key));
    return {};
  }
  return value.Scalar();
}

std::string YamlMap::TextOrEmpty(std::string_view key) { return Has(key) ? Text(key) : std::string(); }

int64_t YamlMap::Number(std::string_view key, int64_t least, int64_t most) {
  const std::string text = Text(key);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    problem_.Add(node_, fmt::format("\"{}\" must be a whole number from {} to {}", key, least, most));
    return least;
  }
  return value;
}

bool YamlMap::Flag(std::string_view key) {
  const std::string text = Text(key);
  if (text != "true" && text != "false") problem_.Add(node_, fmt::format("\"{}\" must be true or false", key));
  return text == "true";
}

std::vector<std::string> YamlMap::ToNames(const YAML::Node& list, std::string_view key) {
  std::vector<std::string> names;
  if (!list.IsDefined()) return names;
  if (!list.IsSequence() || list.size() == 0) {
    problem_.Add(node_, fmt::format("\"{}\" must be a list of names", key));
    return names;
  }
  for (const auto& item : list) {
    if (!item.IsScalar() || item.Scalar().empty()) {
      problem_.Add(node_, fmt::format("\"{}\" must be a list of names", key));
      return {};
    }
    names.push_back(item.Scalar());
  }
  return names;
}

std::vector<std::string> YamlMap::Names(std::string_view key) { return ToNames(Take(key), key); }

std::vector<std::string> YamlMap::NamesOrNone(std::string_view key) {
  return Has(key) ? Names(key) : std::vector<std::string>();
}

YamlMap YamlMap::Map(std::string_view key) { return YamlMap(Take(key), problem_); }

std::vector<YAML::Node> YamlMap::List(std::string_view key) {
  const YAML::Node value = Take(key);
  if (!value.IsDefined()) return {};
  if (!value.IsSequence() || value.size() == 0) {
    problem_.Add(node_, fmt::format("\"{}\" must be a list", key));
    return {};
  }
  std::vector<YAML::Node> items;
  for (const auto& item : value) items.push_back(item);
  return items;
}

std::vector<std::string> YamlMap::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  return keys;
}

void YamlMap::Finish() {
  for (const auto& [key, entry] : entries_) {
    if (!entry.read) problem_.Add(node_, fmt::format("\"{}\" is not a known field", key));
  }
}

Sources ReadSources(YamlMap& root, YamlProblem& problem) {
  Sources sources;
  YamlMap list = root.Map("sources");
  for (const std::string& id : list.Keys()) {
    YamlMap source(list.Take(id), problem);
    sources[id] = source.Text("doc");
    source.TextOrEmpty("used_for");
    source.Finish();
  }
  return sources;
}

void CheckSources(const std::vector<std::string>& ids, const Sources& sources, const YAML::Node& at,
                  YamlProblem& problem) {
  for (const std::string& id : ids) {
    if (sources.find(id) == sources.end()) problem.Add(at, fmt::format("no source is called \"{}\"", id));
  }
}

}  // namespace mete::gpu
