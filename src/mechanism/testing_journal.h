// A journal in memory, for tests; it can be told to fail, as a full disk would make it. One thread.
#ifndef METE_MECHANISM_TESTING_JOURNAL_H_
#define METE_MECHANISM_TESTING_JOURNAL_H_

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "mechanism/journal.h"

namespace mete::mechanism {

class TestJournal final : public Journal {
 public:
  StatusOr<std::vector<Object>> Objects(const std::string& kind, const std::string& gpu) const override {
    std::vector<Object> found;
    for (const Object& object : all) {
      if (object.kind == kind && object.gpu == gpu) found.push_back(object);
    }
    return found;
  }
  Status Put(const Object& object) override {
    if (!failure.ok()) return failure;
    const auto same = Find(object);
    if (same == all.end()) {
      all.push_back(object);
    } else {
      same->data = object.data;
    }
    return OkStatus();
  }
  Status Drop(const Object& object) override {
    if (const auto same = Find(object); same != all.end()) all.erase(same);
    return OkStatus();
  }
  void Reached(const char* point) override {
    if (reached) reached(point);
  }

  std::vector<Object> all;
  Status failure;
  std::function<void(const char*)> reached;  // may throw, to stop a mechanism where a kill would

 private:
  std::vector<Object>::iterator Find(const Object& object) {
    return std::find_if(all.begin(), all.end(), [&object](const Object& other) {
      return other.share_id == object.share_id && other.kind == object.kind && other.gpu == object.gpu &&
             other.key == object.key;
    });
  }
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_TESTING_JOURNAL_H_
