#include "share/protocol.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "plan/choice.h"
#include "plan/resolve.h"

namespace mete::share {
namespace {

constexpr std::array<std::pair<Op, const char*>, 10> kOps = {{{Op::kHello, "hello"},
                                                              {Op::kMake, "make"},
                                                              {Op::kJoin, "join"},
                                                              {Op::kLeave, "leave"},
                                                              {Op::kList, "list"},
                                                              {Op::kShow, "show"},
                                                              {Op::kSet, "set"},
                                                              {Op::kRelease, "release"},
                                                              {Op::kPlan, "plan"},
                                                              {Op::kApply, "apply"}}};

constexpr size_t kMostTextBytes = kMostRequestBytes / 2;  // JSON may double it
constexpr uint64_t kMostProcesses = 1'000'000;

// Reads fields one by one and remembers the first that is wrong.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  std::string Text(const char* key, size_t most) {
    const Json* field = Find(key);
    if (field == nullptr) return {};
    if (!field->is_string() || field->get_ref<const std::string&>().size() > most) return Wrong(key), std::string();
    return field->get<std::string>();
  }
  bool Flag(const char* key) {
    const Json* field = Find(key);
    if (field == nullptr) return false;
    if (!field->is_boolean()) return Wrong(key), false;
    return field->get<bool>();
  }
  uint64_t Number(const char* key, uint64_t least, uint64_t most, uint64_t otherwise) {
    const Json* field = Find(key);
    if (field == nullptr) return otherwise;
    if (!field->is_number_unsigned()) return Wrong(key), otherwise;
    const auto value = field->get<uint64_t>();
    if (value < least || value > most) return Wrong(key), otherwise;
    return value;
  }
  // A field that may be null: given, without a value.
  Change<Bytes> Memory() {
    const Json* field = Find("memory");
    if (field == nullptr) return {};
    if (field->is_null()) return {true, std::nullopt};
    // SQLite's integers are signed: what does not fit there is no memory size either.
    return {true, Bytes{Number("memory", 1, INT64_MAX, 1)}};
  }
  Change<plan::Compute> Compute() {
    const Json* field = Find("compute");
    if (field == nullptr) return {};
    if (field->is_null()) return {true, std::nullopt};
    if (!field->is_object()) return Wrong("compute"), Change<plan::Compute>{};
    Fields inner(*field);
    const std::string mode = inner.Text("mode", 16);
    const auto hundredths = static_cast<uint32_t>(inner.Number("hundredths", 1, 10000, 0));
    if (hundredths == 0 || (mode != "hard" && mode != "soft")) return Wrong("compute"), Change<plan::Compute>{};
    return {true,
            plan::Compute{mode == "soft" ? plan::ComputeMode::kSoft : plan::ComputeMode::kHard, Percent{hundredths}}};
  }
  void Wrong(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }
  Status status() const {
    return wrong_.empty() ? OkStatus() : Usage("request: the field '{}' is wrong or missing", wrong_);
  }

 private:
  const Json* Find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& json_;
  std::string wrong_;
};

bool IsId(const std::string& text) {
  return text.size() == 32 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

template <typename T, typename Write>
void WriteChange(Json& json, const char* key, const Change<T>& change, Write write) {
  if (change.given) json[key] = change.value ? write(*change.value) : Json(nullptr);
}

}  // namespace

StatusOr<Command> ReadCommand(std::string_view text) {
  METE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "request", 8));
  if (!json.is_object()) return Usage("request: not an object");
  Fields fields(json);
  if (fields.Number("version", 0, 1000, 0) != kProtocolVersion) {
    return Refused(
        "request: this broker speaks version {} of the protocol; it was started by another mete. End its "
        "shares, and it makes room for the new one 5 s later",
        kProtocolVersion);
  }
  Command command;
  const std::string op = fields.Text("op", 16);
  const auto known = std::find_if(kOps.begin(), kOps.end(), [&op](const auto& entry) { return op == entry.second; });
  if (known == kOps.end()) return Usage("request: there is no operation of that name");
  command.op = known->first;
  command.id = fields.Text("id", 64);
  command.hint = fields.Text("hint", 256);
  command.run = fields.Flag("run");
  command.preload = fields.Flag("preload");
  command.force = fields.Flag("force");
  command.dry_run = fields.Flag("dry_run");
  command.text = fields.Text("text", kMostTextBytes);
  command.memory = fields.Memory();
  command.compute = fields.Compute();
  if (const std::string answer = fields.Text("on_bypass", 16); !answer.empty()) {
    if (const auto wanted = plan::ParseOnBypass(answer); wanted.ok()) {
      command.on_bypass = *wanted;
    } else {
      fields.Wrong("on_bypass");
    }
  }
  command.share = fields.Text("share", 64);
  command.request.share = command.share;
  command.request.gpu = fields.Text("gpu", 96);
  command.request.gpus = static_cast<int>(fields.Number("gpus", 1, 1024, 1));
  command.request.gpus_given = fields.Flag("gpus_given");
  command.request.via = fields.Text("via", 32);
  if (const std::string need = fields.Text("need", 512); !need.empty()) {
    METE_ASSIGN_OR_RETURN(command.need, plan::ParseNeed(need));
  }
  if (const std::string slice = fields.Text("time_slice", 16); !slice.empty()) {
    METE_ASSIGN_OR_RETURN(command.request.time_slice, plan::ParseTimeSlice(slice));
  }
  if (const uint64_t processes = fields.Number("processes", 1, kMostProcesses, 0); processes != 0) {
    command.request.processes = static_cast<int>(processes);
  }
  command.request.memory = command.memory.value;
  command.request.compute = command.compute.value;
  const bool needs_id = command.op == Op::kMake || command.op == Op::kLeave;
  if (needs_id && !IsId(command.id)) fields.Wrong("id");
  const bool needs_share =
      command.op == Op::kJoin || command.op == Op::kShow || command.op == Op::kSet || command.op == Op::kRelease;
  if (needs_share && command.share.empty()) fields.Wrong("share");
  METE_RETURN_IF_ERROR(fields.status());
  return command;
}

std::string WriteCommand(const Command& command) {
  Json json;
  json["version"] = kProtocolVersion;
  for (const auto& [op, name] : kOps) {
    if (op == command.op) json["op"] = name;
  }
  json["id"] = command.id;
  json["share"] = command.op == Op::kMake || command.op == Op::kPlan ? command.request.share : command.share;
  json["hint"] = command.hint.substr(0, 256);
  json["run"] = command.run;
  json["preload"] = command.preload;
  json["force"] = command.force;
  if (command.op == Op::kApply) {
    json["text"] = command.text;
    json["dry_run"] = command.dry_run;
  }
  if (command.on_bypass) json["on_bypass"] = plan::ToString(*command.on_bypass);
  json["gpu"] = command.request.gpu;
  json["gpus"] = static_cast<uint64_t>(std::max(command.request.gpus, 0));
  json["gpus_given"] = command.request.gpus_given;
  json["via"] = command.request.via;
  std::string need;
  for (const gpu::Promise promise : command.need) need += (need.empty() ? "" : ",") + std::string(gpu::Name(promise));
  json["need"] = need;
  if (command.request.time_slice) json["time_slice"] = plan::ToString(*command.request.time_slice);
  if (command.request.processes) json["processes"] = static_cast<uint64_t>(std::max(*command.request.processes, 0));
  Change<Bytes> memory = command.memory;
  Change<plan::Compute> compute = command.compute;
  if (command.op == Op::kMake || command.op == Op::kPlan) {
    memory = {command.request.memory.has_value(), command.request.memory};
    compute = {command.request.compute.has_value(), command.request.compute};
  }
  WriteChange(json, "memory", memory, [](Bytes bytes) { return Json(bytes.count); });
  WriteChange(json, "compute", compute, [](const plan::Compute& value) {
    return Json({{"mode", plan::ToString(value.mode)}, {"hundredths", value.percent.hundredths}});
  });
  // Arguments may hold bytes that are not UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string WriteReply(const StatusOr<Json>& reply) {
  Json json;
  if (reply.ok()) {
    json["ok"] = *reply;
  } else {
    json["error"] = {{"code", static_cast<int>(ExitCodeFor(reply.status()))}, {"message", Message(reply.status())}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<Json> ReadReply(std::string_view text) {
  StatusOr<Json> json = ParseJson(text, "the broker's reply");
  if (!json.ok()) return Fault("{}", Message(json.status()));
  if (json->is_object() && json->contains("ok")) return (*json)["ok"];
  const auto error = json->is_object() ? json->find("error") : json->end();
  if (error == json->end() || !error->is_object() || !error->contains("code") ||
      !(*error)["code"].is_number_integer() || !error->contains("message") || !(*error)["message"].is_string()) {
    return Fault("the broker's reply cannot be read");
  }
  const auto message = (*error)["message"].get<std::string>();
  switch ((*error)["code"].get<int>()) {
    case static_cast<int>(ExitCode::kUsage): return Usage("{}", message);
    case static_cast<int>(ExitCode::kRefused): return Refused("{}", message);
    case static_cast<int>(ExitCode::kLacks): return Lacks("{}", message);
    default: return Fault("{}", message);
  }
}

std::string Frame(std::string_view payload) {
  std::string frame;
  const auto size = static_cast<uint32_t>(payload.size());
  for (int shift = 0; shift < 32; shift += 8) frame += static_cast<char>(size >> shift & 0xff);
  frame += payload;
  return frame;
}

StatusOr<std::optional<std::string>> Unframer::Next() {
  if (buffer_.size() < 4) return std::optional<std::string>();
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i) size |= size_t{static_cast<unsigned char>(buffer_[i])} << (8 * i);
  if (size > most_) return Usage("a message of {} bytes; at most {}", size, most_);
  if (buffer_.size() < 4 + size) return std::optional<std::string>();
  std::string payload = buffer_.substr(4, size);
  buffer_.erase(0, 4 + size);
  return std::optional<std::string>(std::move(payload));
}

std::string RandomId() {
  std::array<unsigned char, 16> bytes = {};
  for (size_t got = 0; got < bytes.size();) {
    const ssize_t more = getrandom(bytes.data() + got, bytes.size() - got, 0);
    if (more > 0) got += static_cast<size_t>(more);
  }
  std::string id;
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace mete::share
