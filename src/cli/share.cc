// `mete share create|list|show|set|release`: shares that stay until they are released.
#include <ctime>

#include "base/quantities.h"
#include "base/table.h"
#include "cli/broker_client.h"
#include "cli/commands.h"
#include "cli/request_options.h"
#include "plan/resolve.h"

namespace mete::cli {
namespace {

std::string Size(const Json& bytes) { return SizeText(bytes.get<uint64_t>()); }

std::string ComputeText(const Json& compute) {
  const auto mode = compute.value("mode", std::string());
  if (!compute.contains("weight_percent")) return mode;
  if (!compute.contains("percent")) return fmt::format("{}, weight {:g}", mode, compute.value("weight_percent", 0.0));
  return fmt::format("{:g} % {}", compute["percent"].get<double>(), mode);
}

std::string MeasuredText(const Json& compute) {
  if (!compute.contains("measured_percent")) {
    return compute.contains("percent") ? "not measured yet" : "not measured: alone and without a limit";
  }
  if (compute["measured_over_seconds"].get<double>() < 0.5) return "not measured yet";
  return fmt::format("{:g} % over the last {:g} s", compute["measured_percent"].get<double>(),
                     compute["measured_over_seconds"].get<double>());
}

std::string Watermark(const Json& reply) { return reply.value("emulated", false) ? " (emulated GPU)" : ""; }

void PrintForeign(const Json& foreign) {
  for (const Json& one : foreign) {
    Print(
        fmt::format("Not of any share: process {} ({}) on GPU {}, {}; quotas and reservations are not kept there until "
                    "it ends\n",
                    one["pid"].get<uint32_t>(), one["program"].get<std::string>(), one["gpu"].get<uint32_t>(),
                    Size(one["used_bytes"])));
  }
}

void PrintList(const Json& reply) {
  if (reply["shares"].empty()) Print("No shares. 'mete share create' or 'mete run' makes one.\n");
  Table table({{"SHARE"},
               {"GPU"},
               {"BY"},
               {"MEMORY", Align::kRight},
               {"USED", Align::kRight},
               {"COMPUTE"},
               {"PROCESSES", Align::kRight},
               {"MADE BY"},
               {"NOT KEPT", Align::kLeft, true}});
  for (const Json& share : reply["shares"]) {
    for (const Json& gpu : share["gpus"]) {
      std::string broken;
      for (const Json& promise : gpu["promises"]) {
        if (!promise["asked"].get<bool>() || promise["kept"].get<bool>()) continue;
        broken += (broken.empty() ? "" : ", ") + promise["promise"].get<std::string>();
      }
      if (const auto invalid = share["invalid"].get<std::string>(); !invalid.empty()) broken = "INVALID: " + invalid;
      table.AddRow({share["name"].get<std::string>(), std::to_string(gpu["index"].get<uint32_t>()),
                    share["mechanism"].get<std::string>(),
                    Size(gpu["quota_bytes"]) + (gpu["quota_asked"].get<bool>() ? "" : " cap"), Size(gpu["used_bytes"]),
                    ComputeText(gpu["compute"]), std::to_string(share["processes"].get<size_t>()),
                    share["made_by"].get<std::string>(), broken.empty() ? "-" : broken});
    }
  }
  if (!table.empty()) Print(table.Render(TerminalWidth(1)));
  PrintForeign(reply["foreign"]);
}

void PrintGpu(const Json& gpu) {
  Print(fmt::format("  GPU {}: {}\n", gpu["index"].get<uint32_t>(), gpu["name"].get<std::string>()));
  Table facts({{""}, {"", Align::kLeft, true}});
  facts.AddRow({"memory", fmt::format("{} used of {}{}", Size(gpu["used_bytes"]), Size(gpu["quota_bytes"]),
                                      gpu["quota_asked"].get<bool>() ? "" : " (cap: not promised to others)")});
  const Json& compute = gpu["compute"];
  const bool measured = compute.contains("weight_percent");  // by the library in the tenant
  facts.AddRow({"compute",
                measured ? fmt::format("{}; {}", ComputeText(compute), MeasuredText(compute)) : ComputeText(compute)});
  if (measured)
    facts.AddRow({"waits", fmt::format("{} launches waited, {:.1f} s together", compute["waits"].get<uint64_t>(),
                                       static_cast<double>(compute["waited_ns"].get<uint64_t>()) / 1e9)});
  const auto denials = gpu["denials"].get<uint64_t>();
  if (measured)
    facts.AddRow({"refused", denials == 0 ? "no allocation"
                                          : fmt::format("{} allocations, the last of {}", denials,
                                                        Size(gpu["last_denied_bytes"]))});
  for (const Json& promise : gpu["promises"]) {
    const char* word = promise["kept"].get<bool>() ? "kept" : promise["asked"].get<bool>() ? "NOT KEPT" : "not kept";
    facts.AddRow(
        {promise["promise"].get<std::string>(), fmt::format("{}: {}", word, promise["because"].get<std::string>())});
  }
  Print(facts.Render(TerminalWidth(1), 4));
}

std::string TimeText(int64_t at) {
  const auto seconds = static_cast<time_t>(at);
  tm parts = {};
  localtime_r(&seconds, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%F %T", &parts));
}

void PrintShow(const Json& share) {
  Print(fmt::format("{}: made by {} {}, mechanism {}{}\n", share["name"].get<std::string>(),
                    share["made_by"].get<std::string>(), TimeText(share["made_at"].get<int64_t>()),
                    share["mechanism"].get<std::string>(), Watermark(share)));
  for (const Json& gpu : share["gpus"]) PrintGpu(gpu);
  if (!share["processes"].empty()) {
    Print("  Processes\n");
    Table table({{"PID", Align::kRight}, {"PROGRAM"}, {"MEMORY", Align::kRight}});
    for (const Json& process : share["processes"]) {
      std::string memory;
      for (const Json& bytes : process["memory_bytes"]) memory += (memory.empty() ? "" : ", ") + Size(bytes);
      table.AddRow({std::to_string(process["pid"].get<uint32_t>()), process["program"].get<std::string>(), memory});
    }
    Print(table.Render(TerminalWidth(1), 4));
  }
  if (share["on_bypass"] != "report") {
    Print(fmt::format("  Processes that hold memory past the library: {}\n",
                      share["on_bypass"] == "kill" ? "killed" : "stopped"));
  }
  const bool invalid = !share["invalid"].get<std::string>().empty();
  Print(fmt::format("  Evidence: {}\n", share["in_force"].get<bool>() ? "in force"
                                        : invalid                     ? "INVALID, nothing may start in it"
                                                                      : "NOT IN FORCE"));
  Table evidence({{""}, {""}, {"", Align::kLeft, true}});
  for (const Json& item : share["evidence"]) {
    evidence.AddRow({item["holds"].get<bool>() ? "yes" : "NO", item["what"].get<std::string>(),
                     item["because"].get<std::string>()});
  }
  Print(evidence.Render(TerminalWidth(1), 4));
  if (!share["events"].empty()) {
    Print("  Events\n");
    Table events({{""}, {""}, {"", Align::kLeft, true}});
    for (const Json& event : share["events"]) {
      events.AddRow(
          {TimeText(event["at"].get<int64_t>()), event["kind"].get<std::string>(), event["text"].get<std::string>()});
    }
    Print(events.Render(TerminalWidth(1), 4));
  }
  PrintForeign(share["foreign"]);
}

StatusOr<Json> Ask(const Common& common, const share::Command& command) {
  METE_ASSIGN_OR_RETURN(const share::Places places, PlacesOfNode(common.driver_root));
  return ClientOf(places).Call(command);
}

std::string GpuText(const Json& share) {
  std::string text;
  for (const Json& gpu : share["gpus"]) {
    text += fmt::format("{}GPU {} ({}): {} of memory{}, compute {}", text.empty() ? "" : "; ",
                        gpu["index"].get<uint32_t>(), gpu["name"].get<std::string>(), Size(gpu["quota_bytes"]),
                        gpu["quota_asked"].get<bool>() ? "" : " at most", ComputeText(gpu["compute"]));
  }
  return text;
}

StatusOr<int> Create(const std::vector<std::string>& words) {
  CLI::App app("Makes a share that stays until it is released.");
  Common common;
  AddCommon(app, common);
  share::Command command;
  command.op = share::Op::kMake;
  command.id = share::RandomId();
  app.add_option("--name", command.request.share, "Its name (else one is found)")
      ->option_text("NAME")
      ->check([](const std::string& name) { return name.empty() ? "the name is empty" : ""; });
  RequestOptions request;
  request.AddTo(app);
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "share create", words));
  if (!go) return 0;
  METE_RETURN_IF_ERROR(request.Read(&command));
  METE_ASSIGN_OR_RETURN(const Json reply, Ask(common, command));
  if (common.json) {
    PrintJson(reply);
  } else {
    const auto name = reply["name"].get<std::string>();
    Print(fmt::format("{} made on {}. Use it: mete run --share {} -- CMD\n", name, GpuText(reply), name));
  }
  return 0;
}

StatusOr<int> List(const std::vector<std::string>& words) {
  CLI::App app("Lists the shares of a node, and processes that use its GPUs without one.");
  Common common;
  AddCommon(app, common);
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "share list", words));
  if (!go) return 0;
  share::Command command;
  command.op = share::Op::kList;
  METE_ASSIGN_OR_RETURN(const Json reply, Ask(common, command));
  if (common.json) {
    PrintJson(reply);
  } else {
    PrintList(reply);
  }
  return 0;
}

StatusOr<int> Show(const std::vector<std::string>& words) {
  CLI::App app("Shows a share: what it has, holds and was refused, and which promises are kept now.");
  Common common;
  AddCommon(app, common);
  share::Command command;
  command.op = share::Op::kShow;
  app.add_option("NAME", command.share, "The share")->required();
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "share show", words));
  if (!go) return 0;
  METE_ASSIGN_OR_RETURN(const Json reply, Ask(common, command));
  if (common.json) {
    PrintJson(reply);
  } else {
    PrintShow(reply);
  }
  return 0;
}

StatusOr<int> Set(const std::vector<std::string>& words) {
  CLI::App app("Changes a share; its running processes feel it at once.");
  Common common;
  AddCommon(app, common);
  share::Command command;
  command.op = share::Op::kSet;
  std::string memory, compute, on_bypass;
  app.add_option("NAME", command.share, "The share")->required();
  app.add_option("--memory", memory, "New memory quota, or none")->option_text("SIZE|none");
  app.add_option("--compute", compute, "New compute promise, or none")->option_text("PCT[,soft|,hard]|none");
  app.add_option("--on-bypass", on_bypass,
                 "What is done about processes that hold memory past the library: report, freeze, kill")
      ->option_text("ANSWER");
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "share set", words));
  if (!go) return 0;
  if (!on_bypass.empty()) {
    METE_ASSIGN_OR_RETURN(command.on_bypass, plan::ParseOnBypass(on_bypass));
  }
  METE_ASSIGN_OR_RETURN(command.memory, ReadMemoryChange(memory));
  METE_ASSIGN_OR_RETURN(command.compute, ReadComputeChange(compute));
  if (!command.memory.given && !command.compute.given && !command.on_bypass) {
    return Usage("nothing to change: give --memory, --compute or --on-bypass");
  }
  METE_ASSIGN_OR_RETURN(const Json reply, Ask(common, command));
  if (common.json) {
    PrintJson(reply);
    return 0;
  }
  Print(fmt::format("{} has on {}\n", command.share, GpuText(reply)));
  for (const Json& gpu : reply["gpus"]) {
    if (gpu["used_bytes"].get<uint64_t>() <= gpu["quota_bytes"].get<uint64_t>()) continue;
    Print(fmt::format(
        "On GPU {} it holds {} already: nothing is taken from it, and it gets no more until it holds less\n",
        gpu["index"].get<uint32_t>(), Size(gpu["used_bytes"])));
  }
  return 0;
}

StatusOr<int> Release(const std::vector<std::string>& words) {
  CLI::App app("Ends a share.");
  Common common;
  AddCommon(app, common);
  share::Command command;
  command.op = share::Op::kRelease;
  app.add_option("NAME", command.share, "The share")->required();
  app.add_flag("--force", command.force,
               "Although processes run in it; they get no more memory and launch nothing more");
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "share release", words));
  if (!go) return 0;
  METE_ASSIGN_OR_RETURN(const Json reply, Ask(common, command));
  if (common.json) {
    PrintJson(reply);
  } else {
    Print(fmt::format("{} released\n", command.share));
  }
  return 0;
}

constexpr std::string_view kHelp =
    "Shares that stay until they are released.\n"
    "\n"
    "Usage: mete share create [--name NAME] [--gpu N|UUID] [--memory SIZE] [--compute PCT[,soft|,hard]] [--need …]\n"
    "                         [--via MECHANISM] …\n"
    "       mete share list\n"
    "       mete share show NAME\n"
    "       mete share set NAME [--memory SIZE|none] [--compute PCT[,soft|,hard]|none] [--on-bypass ANSWER]\n"
    "       mete share release NAME [--force]\n"
    "\n"
    "Each takes --json, --driver-root DIR and --help.\n";

StatusOr<int> RunShare(const std::vector<std::string>& words) {
  if (words.empty()) {
    Print(kHelp);
    return Usage("say what to do: mete share create, list, show, set or release");
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (words[0] == "create") return Create(rest);
  if (words[0] == "list") return List(rest);
  if (words[0] == "show") return Show(rest);
  if (words[0] == "set") return Set(rest);
  if (words[0] == "release") return Release(rest);
  if (words[0] == "--help" || words[0] == "-h") {
    Print(kHelp);
    return 0;
  }
  return Usage("mete share {}: there are create, list, show, set and release", words[0]);
}

}  // namespace

const Command kShare{"share", "shares that stay: create, list, show, set, release", Group::kShare, RunShare};

}  // namespace mete::cli
