// What a MIG board allows, worked out from the fact tables alone: reads data/mig.yaml by itself and applies the rules
// written there (`mig_rules`) one by one. Shares no code with the planner or the emulator, so that either can be held
// against it. For tests. Header only; needs yaml-cpp. Starts and sizes are memory slices; not thread-safe.
#ifndef METE_TESTS_ORACLE_MIG_ORACLE_H_
#define METE_TESTS_ORACLE_MIG_ORACLE_H_

#include <yaml-cpp/yaml.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace mete::oracle {

struct OracleCompute {  // a compute-instance profile of a GPU-instance profile
  std::string name;
  int id = 0, slices = 0, most = 0;
  std::vector<int> starts;
};

struct OracleProfile {
  std::string name;
  int id = 0, enumeration = 0, compute = 0, memory = 0, most = 0, mib = 0;
  int sms = 0;  // 0: not in the tables
  int copy_engines = 0, decoders = 0, encoders = 0, jpegs = 0, ofas = 0;
  std::vector<int> starts;
  std::vector<OracleCompute> computes;
};

struct OracleInstance {
  int profile_id = 0, start = 0;
  friend bool operator<(const OracleInstance& a, const OracleInstance& b) {
    return a.start != b.start ? a.start < b.start : a.profile_id < b.profile_id;
  }
};

class MigOracle {
 public:
  MigOracle(const std::string& file, const std::string& board) {
    const YAML::Node table = YAML::LoadFile(file)["boards"][board];
    compute_ = table["compute_slices"].as<int>();
    most_ = table["max_gpu_instances"].as<int>();
    for (const auto& entry : table["gi_id_base"]) first_id_[entry.first.as<int>()] = entry.second.as<int>();
    for (const auto& row : table["gpu_instance_profiles"]) {
      OracleProfile profile;
      profile.name = row["name"].as<std::string>();
      profile.id = row["nsmi_profile_id"].as<int>();
      profile.compute = row["compute_slices"].as<int>();
      profile.memory = row["memory_slices"].as<int>();
      profile.most = row["max_instances"].as<int>();
      profile.mib = row["memory_mib"].as<int>();
      profile.enumeration = row["nvml_enum_value"].as<int>();
      profile.sms = row["sm_count"].as<int>(0);
      profile.copy_engines = row["copy_engines"].as<int>();
      profile.decoders = row["engines"]["decoder"].as<int>();
      profile.encoders = row["engines"]["encoder"].as<int>();
      profile.jpegs = row["engines"]["jpeg"].as<int>();
      profile.ofas = row["engines"]["ofa"].as<int>();
      for (const auto& inner : row["compute_instances"]) {
        profile.computes.push_back({inner["name"].as<std::string>(), inner["profile_id"].as<int>(),
                                    inner["compute_slices"].as<int>(), inner["max_instances"].as<int>(),
                                    inner["starts"].as<std::vector<int>>()});
      }
      for (const auto& placement : row["placements"]) profile.starts.push_back(placement["start"].as<int>());
      profiles.push_back(profile);
    }
  }

  static std::vector<std::string> Boards(const std::string& file) {
    std::vector<std::string> names;
    for (const auto& entry : YAML::LoadFile(file)["boards"]) names.push_back(entry.first.as<std::string>());
    return names;
  }

  std::vector<OracleProfile> profiles;
  std::set<OracleInstance> instances;

  const OracleProfile& Profile(int id) const {
    for (const OracleProfile& profile : profiles) {
      if (profile.id == id) return profile;
    }
    return profiles.at(profiles.size());  // throws: no such id
  }

  // The rules of data/mig.yaml: overlap, compute-sum, one-me, all-me-excludes, and the counts of the table.
  bool Allows(int profile_id, int start) const {
    const OracleProfile& wanted = Profile(profile_id);
    bool listed = false;
    for (const int one : wanted.starts) listed = listed || one == start;
    if (!listed) return false;
    int compute = wanted.compute, same = 1;
    for (const OracleInstance& instance : instances) {
      const OracleProfile& other = Profile(instance.profile_id);
      if (start < instance.start + other.memory && instance.start < start + wanted.memory) return false;
      compute += other.compute;
      if (other.id == wanted.id) ++same;
      if (HasMedia(other) && HasMedia(wanted)) return false;
      if (Ends(other.name, "+me.all") && !Ends(wanted.name, "-me")) return false;
      if (Ends(wanted.name, "+me.all") && !Ends(other.name, "-me")) return false;
    }
    return compute <= compute_ && same <= wanted.most && static_cast<int>(instances.size()) < most_;
  }

  std::vector<int> PossibleStarts(int profile_id) const {
    std::vector<int> starts;
    for (const int start : Profile(profile_id).starts) {
      if (Allows(profile_id, start)) starts.push_back(start);
    }
    return starts;
  }

  // Compute instances of one GPU instance, by start: they share no slice, and there are as many as the table allows.
  using Computes = std::map<int, OracleCompute>;
  static bool AllowsCompute(const Computes& there, const OracleCompute& wanted, int start) {
    bool listed = false;
    for (const int one : wanted.starts) listed = listed || one == start;
    if (!listed) return false;
    int same = 1;
    for (const auto& [at, other] : there) {
      if (start < at + other.slices && at < start + wanted.slices) return false;
      if (other.id == wanted.id) ++same;
    }
    return same <= wanted.most;
  }

  // Rule gi-id-from-placement.
  int InstanceId(const OracleInstance& instance) const {
    const int size = Profile(instance.profile_id).memory;
    return first_id_.at(size) + instance.start / size;
  }

 private:
  static bool Ends(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
  }
  static bool HasMedia(const OracleProfile& profile) {
    return Ends(profile.name, "+me") || Ends(profile.name, "+me.all");
  }

  int compute_ = 0, most_ = 0;
  std::map<int, int> first_id_;
};

}  // namespace mete::oracle

#endif  // METE_TESTS_ORACLE_MIG_ORACLE_H_
