// `mete emulate down`, `status` and `env`.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/output.h"
#include "base/quantities.h"
#include "base/table.h"
#include "emulator/engine/commands.h"
#include "emulator/engine/node.h"

namespace mete::emulator {

namespace fs = std::filesystem;

namespace {

constexpr int kEndMs = 5000;

// Quoted for a POSIX shell.
std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// Waits for the process to be gone; kills it when it does not go by itself.
bool AwaitEnd(int pidfd) {
  pollfd gone = {pidfd, POLLIN, 0};
  if (poll(&gone, 1, kEndMs) > 0) return true;
  syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
  poll(&gone, 1, kEndMs);
  return false;
}

StatusOr<Json> Merged(const NodeState& node) {
  METE_ASSIGN_OR_RETURN(const std::string text, Ask(node.root, MessageType::kStatus));
  METE_ASSIGN_OR_RETURN(const Json engine, ParseJson(text, "the engine's status"));
  Json json = node.json;
  json["running"] = true;
  json.erase("made_root");
  for (const auto& [key, value] : engine.items()) {
    if (key != "gpus") json[key] = value;
  }
  for (size_t i = 0; i < json["gpus"].size() && i < engine["gpus"].size(); ++i)
    json["gpus"][i].update(engine["gpus"][i]);
  return json;
}

}  // namespace

StatusOr<NodeState> ResolveNode(const std::string& dir) {
  if (!dir.empty()) {
    std::error_code error;
    const fs::path real = fs::canonical(dir, error);
    if (error) return NoSuch("--dir {}: {}", dir, error.message());
    return ReadNode(real.string());
  }
  const std::vector<NodeState> up = NodesUp();
  if (up.size() == 1) return up.front();
  if (up.size() > 1) {
    std::string list;
    for (const NodeState& node : up) list += "\n  --dir " + node.root;
    return Usage("{} emulated nodes are up; say which one:{}", up.size(), list);
  }
  METE_ASSIGN_OR_RETURN(const std::string runtime, RuntimeFolder());
  return ReadNode(runtime + "/node");
}

Status NotUp(const NodeState& node) {
  return NoSuch("no emulated node is up in {}; 'mete emulate up --gpus A100-SXM4-40GB' starts one", node.root);
}

Status Down(const std::string& dir, bool json) {
  METE_ASSIGN_OR_RETURN(NodeState node, ResolveNode(dir));
  const std::string root = node.root;
  const bool made_root = node.json.is_object() && node.json.value("made_root", false);
  if (!node.running) {
    if (access((root + "/run/engine.pid").c_str(), F_OK) != 0) return NotUp(node);
    // Left by an engine that was killed. An `up` at work holds the lock.
    METE_ASSIGN_OR_RETURN(const int lock, LockNode(root));
    UnpublishNode(root);
    RemoveTree(root, made_root);
    close(lock);
    if (json) {
      Print(ToText(Json{{"driver_root", root}, {"was_running", false}, {"users", Json::array()}}));
    } else {
      Print("no engine was running in {}; what it had left is cleared away\n", root);
    }
    return OkStatus();
  }
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, node.pid, 0));
  // The process may have ended, and its number been given away, between reading and opening.
  if (pidfd < 0 || StartTime(node.pid) != node.json["start_time"].get<uint64_t>()) return Down(root, json);
  Json users = Json::array();
  if (const StatusOr<Json> status = Merged(node); status.ok()) {
    for (const Json& gpu : (*status)["gpus"]) {
      for (Json process : gpu["processes"]) {
        process["gpu"] = gpu["index"];
        users.push_back(std::move(process));
      }
    }
  }
  const StatusOr<std::string> stop = Ask(root, MessageType::kStop);
  if (!stop.ok() && ExitCodeFor(stop.status()) == ExitCode::kRefused) {
    close(pidfd);
    return stop.status();
  }
  const bool willing = AwaitEnd(pidfd);
  close(pidfd);
  UnpublishNode(root);
  RemoveTree(root, made_root);
  if (json) {
    Print(ToText(Json{{"driver_root", root}, {"was_running", true}, {"users", users}}));
    return OkStatus();
  }
  for (const Json& user : users) {
    Print("still in use by process {} ({}) on GPU {}: it has lost its GPU\n", user["pid"].get<int>(),
          user["name"].get<std::string>(), user["gpu"].get<int>());
  }
  Print("emulated node in {} is down{}\n", root, willing ? "" : "; its engine did not answer and was killed");
  return OkStatus();
}

Status ShowStatus(const std::string& dir, bool as_json) {
  METE_ASSIGN_OR_RETURN(const NodeState node, ResolveNode(dir));
  if (!node.running) return NotUp(node);
  METE_ASSIGN_OR_RETURN(const Json json, Merged(node));
  if (as_json) {
    Print(ToText(json));
    return OkStatus();
  }
  const auto size = [](const Json& bytes) { return fmt::format("{} MiB", bytes.get<uint64_t>() / kMiB); };
  Print("emulated node in {}, driver {}, engine process {}\n", node.root, json["driver_version"].get<std::string>(),
        node.pid);
  Table gpus({{"GPU"},
              {"name"},
              {"memory used", Align::kRight},
              {"of", Align::kRight},
              {"contexts", Align::kRight},
              {"busy", Align::kRight},
              {"state", Align::kLeft, true}});
  const auto state = [](const Json& gpu) {
    const std::string needs = gpu["needs"].get<std::string>();
    const std::string lost = gpu["lost"].get<bool>() ? "lost" : "";
    if (needs == "nothing") return lost.empty() ? "sound" : lost;
    return lost + (lost.empty() ? "needs " : "; needs ") + needs;
  };
  Table users({{"GPU"}, {"process", Align::kRight}, {"memory", Align::kRight}, {"program", Align::kLeft, true}});
  for (const Json& gpu : json["gpus"]) {
    gpus.AddRow({gpu["index"].dump(), gpu["name"].get<std::string>(), size(gpu["memory_used_bytes"]),
                 size(gpu["memory_bytes"]), gpu["contexts"].dump(), gpu["utilization_gpu"].dump() + " %", state(gpu)});
    for (const Json& process : gpu["processes"]) {
      users.AddRow({gpu["index"].dump(), process["pid"].dump(), size(process["memory_bytes"]),
                    process["name"].get<std::string>()});
    }
  }
  Print(gpus.Render(TerminalWidth(1)));
  if (!users.empty()) Print("\n{}", users.Render(TerminalWidth(1)));
  if (!json["unsupported_calls"].empty()) {
    Table calls({{"call that the emulated driver does not support"}, {"times", Align::kRight}});
    for (const auto& [symbol, count] : json["unsupported_calls"].items()) calls.AddRow({symbol, count.dump()});
    Print("\n{}", calls.Render(TerminalWidth(1)));
  }
  return OkStatus();
}

Status ShowEnvironment(const std::string& dir) {
  METE_ASSIGN_OR_RETURN(const NodeState node, ResolveNode(dir));
  if (!node.running) return NotUp(node);
  Print("export METE_DRIVER_ROOT={}\n", Quoted(node.root));
  Print("export LD_LIBRARY_PATH={}\"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"\n",
        Quoted(node.root + "/usr/lib/x86_64-linux-gnu"));
  Print("export PATH={}\"${{PATH:+:$PATH}}\"\n", Quoted(node.root + "/usr/bin"));
  return OkStatus();
}

}  // namespace mete::emulator
