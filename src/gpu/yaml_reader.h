// Reads the embedded YAML tables strictly: every key is named, every value has its type and range, unknown and doubled
// keys are errors. The first problem is kept with its line; later reads return empty values, so that a parser is
// written as a plain sequence and asks once at the end. No exception leaves this header. Not thread-safe.
#ifndef METE_GPU_YAML_READER_H_
#define METE_GPU_YAML_READER_H_

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mete::gpu {

// The first thing that was wrong with a document.
class YamlProblem {
 public:
  explicit YamlProblem(std::string document) : document_(std::move(document)) {}
  void Add(const YAML::Node& at, std::string_view what);
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  std::string document_;
  Status status_;
};

// The root of a document of at most 1 MiB, or Usage.
StatusOr<YAML::Node> LoadYaml(std::string_view text, std::string_view document);

// One mapping. `problem` outlives it.
class YamlMap {
 public:
  YamlMap(const YAML::Node& node, YamlProblem& problem);

  bool Has(std::string_view key) const { return entries_.find(key) != entries_.end(); }
  std::string Text(std::string_view key);  // required, not empty
  std::string TextOrEmpty(std::string_view key);
  int64_t Number(std::string_view key, int64_t least, int64_t most);
  bool Flag(std::string_view key);
  std::vector<std::string> Names(std::string_view key);  // required, at least one
  std::vector<std::string> NamesOrNone(std::string_view key);
  YamlMap Map(std::string_view key);
  std::vector<YAML::Node> List(std::string_view key);  // required, at least one
  std::vector<std::string> Keys() const;
  // The value of a key, to be read with one of the functions above by a YamlMap of its own.
  YAML::Node Take(std::string_view key);

  // Reports keys that nobody asked for.
  void Finish();
  const YAML::Node& node() const { return node_; }

 private:
  struct Entry {
    YAML::Node value;
    bool read = false;
  };
  std::vector<std::string> ToNames(const YAML::Node& list, std::string_view key);

  YAML::Node node_;
  YamlProblem& problem_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// The `sources:` mapping that every table opens with: id → what it is.
using Sources = std::map<std::string, std::string, std::less<>>;
Sources ReadSources(YamlMap& root, YamlProblem& problem);
// Reports ids that `sources` does not know.
void CheckSources(const std::vector<std::string>& ids, const Sources& sources, const YAML::Node& at,
                  YamlProblem& problem);

}  // namespace mete::gpu

#endif  // METE_GPU_YAML_READER_H_
