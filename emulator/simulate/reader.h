// Reads one mapping of a YAML file that a person wrote: every key must be known, every value of its type and range. The
// first problem is kept, with file and line; later reads return fallbacks. Not thread-safe.
#ifndef METE_EMULATOR_SIMULATE_READER_H_
#define METE_EMULATOR_SIMULATE_READER_H_

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/status.h"

namespace mete::emulator {

struct Range {  // of nanoseconds, both ends included
  uint64_t least = 0, most = 0;
};

inline constexpr double kLongestSeconds = 3600;  // of virtual time

class Reader {
 public:
  // `file` and `where` open every message: "file:line: where: …".
  Reader(const YAML::Node& node, std::string file, std::string where, Status* status)
      : node_(node), file_(std::move(file)), where_(std::move(where)), status_(status) {
    if (!node_.IsMap()) Fail("must be a mapping");
  }
  // A mapping or a list's entry inside this one.
  Reader In(const YAML::Node& node, const std::string& name) const {
    return Reader(node, file_, where_.empty() ? name : where_ + "." + name, status_);
  }

  void Keys(std::initializer_list<const char*> known) {
    if (!node_.IsMap()) return;
    for (const auto& item : node_) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "?";
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        FailAt(item.first, fmt::format("unknown key '{}'; known are {}", key, fmt::join(known, ", ")));
      }
    }
  }

  bool Has(const char* key) const { return node_.IsMap() && node_[key].IsDefined(); }
  YAML::Node At(const char* key) const { return node_[key]; }

  double Number(const char* key, double fallback, double least, double most) {
    return Has(key) ? Value(node_[key], key, least, most) : fallback;
  }
  template <typename Integer>
  Integer Whole(const char* key, Integer fallback, double least, double most) {
    const double value = Number(key, static_cast<double>(fallback), least, most);
    if (value != std::floor(value)) FailAt(node_[key], fmt::format("{} must be a whole number", key));
    return static_cast<Integer>(value);
  }
  uint64_t Ms(const char* key, uint64_t fallback) {
    return static_cast<uint64_t>(Number(key, static_cast<double>(fallback) / 1e6, 0, kLongestSeconds * 1e3) * 1e6);
  }
  std::string Text(const char* key) {
    if (!Has(key)) return {};
    if (node_[key].IsScalar()) return node_[key].Scalar();
    FailAt(node_[key], fmt::format("{} must be a text", key));
    return {};
  }
  bool Flag(const char* key, bool fallback) {
    if (!Has(key)) return fallback;
    const std::string text = Text(key);
    if (text != "true" && text != "false") FailAt(node_[key], fmt::format("{} must be true or false", key));
    return text == "true";
  }
  // One of the words, as its place in the list; the first when absent.
  size_t OneOf(const char* key, std::initializer_list<const char*> words) {
    if (!Has(key)) return 0;
    const std::string text = Text(key);
    const auto found = std::find(words.begin(), words.end(), text);
    if (found != words.end()) return static_cast<size_t>(found - words.begin());
    FailAt(node_[key], fmt::format("{} '{}' must be {}", key, text, fmt::join(words, ", ")));
    return 0;
  }
  Range Microseconds(const char* key, Range fallback) {
    if (!Has(key)) return fallback;
    const YAML::Node value = node_[key];
    if (value.IsSequence() && value.size() == 2) {
      const Range range = {static_cast<uint64_t>(Value(value[0], key, 0, 1e6) * 1e3),
                           static_cast<uint64_t>(Value(value[1], key, 0, 1e6) * 1e3)};
      if (range.least <= range.most) return range;
    }
    FailAt(value, fmt::format("{} must be [least, most]", key));
    return fallback;
  }
  template <typename Number>
  std::vector<Number> List(const char* key, std::vector<Number> fallback, double least, double most,
                           size_t longest = 64) {
    if (!Has(key)) return fallback;
    const YAML::Node list = node_[key];
    if (!list.IsSequence() || list.size() == 0 || list.size() > longest) {
      FailAt(list, fmt::format("{} must be a list of 1 to {} numbers", key, longest));
      return fallback;
    }
    std::vector<Number> numbers;
    for (const auto& item : list) numbers.push_back(static_cast<Number>(Value(item, key, least, most)));
    return numbers;
  }
  // Calls `read` with a Reader for each entry of the list.
  template <typename Read>
  void Each(const char* key, Read&& read) {
    if (!Has(key)) return;
    const YAML::Node list = node_[key];
    if (!list.IsSequence()) return FailAt(list, fmt::format("{} must be a list", key));
    for (size_t i = 0; i < list.size(); ++i) read(In(list[i], fmt::format("{}[{}]", key, i)));
  }

  void Fail(const std::string& message) { FailAt(node_, message); }
  void FailAt(const YAML::Node& at, const std::string& message) {
    if (!status_->ok()) return;
    const int line = at.IsDefined() && at.Mark().line >= 0 ? at.Mark().line + 1 : 1;
    *status_ = Usage("{}:{}: {}{}{}", file_, line, where_, where_.empty() ? "" : ": ", message);
  }
  bool ok() const { return status_->ok(); }

 private:
  double Value(const YAML::Node& value, const char* key, double least, double most) {
    double number = least;
    if (!value.IsScalar() || !YAML::convert<double>::decode(value, number) || !(number >= least && number <= most)) {
      FailAt(value, fmt::format("{} must be a number from {} to {}", key, least, most));
      return least;
    }
    return number;
  }

  YAML::Node node_;
  std::string file_, where_;
  Status* status_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_SIMULATE_READER_H_
