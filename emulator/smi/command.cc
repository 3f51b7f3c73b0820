#include "emulator/smi/command.h"

#include <strings.h>
#include <time.h>

#include <algorithm>
#include <charconv>

#include "emulator/smi/table.h"

namespace mete::emulator::smi {

namespace {

// "-i 0", "--id=0", "--id 0": the option's name and value.
struct Option {
  std::string name;
  std::optional<std::string> value;
};

bool TakesValue(const std::string& name) {
  for (const char* option : {"-i", "--id", "-l", "--loop", "-lms", "--loop-ms", "--query-gpu", "--query-compute-apps",
                             "--format", "-c", "--compute-mode"}) {
    if (name == option) return true;
  }
  return false;
}

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool ParseMs(const std::string& text, int unit_ms, std::optional<int>* ms) {
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 1'000'000) return false;
  *ms = value * unit_ms;
  return true;
}

bool ParseMode(const std::string& text, int* mode) {
  constexpr const char* kNames[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
  for (int i = 0; i < 4; ++i) {
    if (strcasecmp(text.c_str(), kNames[i]) == 0 || text == std::to_string(i)) {
      *mode = i;
      return true;
    }
  }
  return false;
}

void SplitIds(std::string_view list, std::vector<std::string>* ids) {
  while (!list.empty()) {
    size_t comma = list.find(',');
    if (comma != 0) ids->emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

// `short_id`: "0000:07:00.0" and "07:00.0" mean "00000000:07:00.0".
bool Matches(const SmiGpu& gpu, const std::string& id) {
  if (IsNumber(id)) return id == std::to_string(gpu.index);
  if (strcasecmp(id.c_str(), gpu.uuid.c_str()) == 0 || id == gpu.serial) return true;
  return id.size() >= 7 && id.size() <= gpu.bus_id.size() &&
         strcasecmp(id.c_str(), gpu.bus_id.c_str() + (gpu.bus_id.size() - id.size())) == 0;
}

// In the node's order; a name that fits nothing is an error.
bool ChooseGpus(const SmiSnapshot& snapshot, const std::vector<std::string>& ids, std::vector<size_t>* chosen,
                std::string* unknown) {
  for (const std::string& id : ids) {
    bool any =
        std::any_of(snapshot.gpus.begin(), snapshot.gpus.end(), [&](const SmiGpu& gpu) { return Matches(gpu, id); });
    if (!any) {
      *unknown = id;
      return false;
    }
  }
  for (size_t i = 0; i < snapshot.gpus.size(); ++i) {
    bool named =
        std::any_of(ids.begin(), ids.end(), [&](const std::string& id) { return Matches(snapshot.gpus[i], id); });
    if (ids.empty() || named) chosen->push_back(i);
  }
  return true;
}

std::string Date() {
  time_t now = time(nullptr);
  tm parts = {};
  localtime_r(&now, &parts);
  char text[64];
  strftime(text, sizeof(text), "%a %b %e %H:%M:%S %Y", &parts);
  return text;
}

Exit Bad(std::string* message, const std::string& why) {
  *message = why;
  return kInvalidArgument;
}

Exit Apply(const Option& option, Request* request, std::string* message) {
  const std::string& name = option.name;
  const std::string value = option.value.value_or("");
  if (name == "-h" || name == "--help") {
    request->action = Action::kHelp;
  } else if (name == "--help-query-gpu") {
    request->action = Action::kHelpGpuFields;
  } else if (name == "--help-query-compute-apps") {
    request->action = Action::kHelpAppFields;
  } else if (name == "-L" || name == "--list-gpus") {
    request->action = Action::kList;
  } else if (name == "--query-gpu") {
    request->action = Action::kQueryGpu;
    request->fields = value;
  } else if (name == "--query-compute-apps") {
    request->action = Action::kQueryApps;
    request->fields = value;
  } else if (name == "--format") {
    CsvFormat format;
    if (!ParseFormat(value, &format))
      return Bad(message, "--format=" + value + ": csv, with noheader and nounits if wanted");
    request->format = format;
  } else if (name == "-i" || name == "--id") {
    SplitIds(value, &request->gpus);
    if (request->gpus.empty()) return Bad(message, "--id: names no GPU");
  } else if (name == "-l" || name == "--loop") {
    if (!option.value) {
      request->loop_ms = 5000;
    } else if (!ParseMs(value, 1000, &request->loop_ms)) {
      return Bad(message, "--loop " + value + ": whole seconds, from 1 on");
    }
  } else if (name == "-lms" || name == "--loop-ms") {
    if (!ParseMs(value, 1, &request->loop_ms))
      return Bad(message, "--loop-ms " + value + ": whole milliseconds, from 1 on");
  } else if (name == "-c" || name == "--compute-mode") {
    request->action = Action::kSetComputeMode;
    if (!ParseMode(value, &request->compute_mode)) {
      return Bad(message, "--compute-mode " + value + ": DEFAULT, EXCLUSIVE_PROCESS or PROHIBITED, or 0, 3, 2");
    }
  } else if (name == "-q" || name == "--query" || (!name.empty() && name[0] != '-')) {
    *message = "'" + name + "' is an option of nvidia-smi that the emulated one has not built yet";
    return kNotBuilt;
  } else {
    return Bad(message, "Option " + name + " is not recognized. Run 'nvidia-smi -h'");
  }
  return kOk;
}

}  // namespace

Exit ParseRequest(const std::vector<std::string>& words, Request* request, std::string* message) {
  for (size_t i = 0; i < words.size(); ++i) {
    Option option;
    size_t equals = words[i].rfind("--", 0) == 0 ? words[i].find('=') : std::string::npos;
    option.name = words[i].substr(0, equals);
    if (equals != std::string::npos) {
      option.value = words[i].substr(equals + 1);
      if (!TakesValue(option.name)) return Bad(message, "Option " + option.name + " takes no value");
    } else if (TakesValue(option.name)) {
      bool loop = option.name == "-l" || option.name == "--loop";
      bool next = i + 1 < words.size() && (!loop || IsNumber(words[i + 1]));
      if (next) option.value = words[++i];
      if (!next && !loop) return Bad(message, "Option " + option.name + " needs a value");
    }
    Exit code = Apply(option, request, message);
    if (code != kOk) return code;
    if (request->action == Action::kHelp) return kOk;
  }
  bool query = request->action == Action::kQueryGpu || request->action == Action::kQueryApps;
  if (query && !request->format) return Bad(message, "a query needs --format=csv");
  return kOk;
}

Exit Answer(const Request& request, SmiSource* source, std::string* text, std::string* message) {
  SmiSnapshot snapshot;
  if (Exit code = source->Read(&snapshot, message); code != kOk) return code;
  std::vector<size_t> chosen;
  std::string unknown;
  if (!ChooseGpus(snapshot, request.gpus, &chosen, &unknown)) {
    *message = "No devices were found: there is no GPU '" + unknown + "'; 'nvidia-smi -L' lists them";
    return kNotFound;
  }
  if (snapshot.gpus.empty()) {
    *message = "No devices were found";
    return kNotFound;
  }
  CsvFormat format = request.format.value_or(CsvFormat());
  bool known = true;
  switch (request.action) {
    case Action::kTable:
      *text += Table(snapshot, chosen, Date());
      if (source->emulated()) *text += "This is an emulated GPU node (mete).\n";
      break;
    case Action::kList: *text += List(snapshot, chosen); break;
    case Action::kQueryGpu: known = QueryGpus(snapshot, chosen, request.fields, format, text, &unknown); break;
    case Action::kQueryApps: known = QueryApps(snapshot, chosen, request.fields, format, text, &unknown); break;
    case Action::kSetComputeMode: {
      constexpr const char* kNames[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
      for (size_t index : chosen) {
        const SmiGpu& gpu = snapshot.gpus[index];
        if (Exit code = source->SetComputeMode(gpu.index, request.compute_mode, message); code != kOk) return code;
        *text += std::string("Set compute mode to ") + kNames[request.compute_mode] + " for GPU " + gpu.bus_id + ".\n";
      }
      *text += "All done.\n";
      break;
    }
    case Action::kHelp:
    case Action::kHelpGpuFields:
    case Action::kHelpAppFields: break;
  }
  if (!known) {
    *message = "Field \"" + unknown + "\" is not a valid field to query.";
    return kInvalidArgument;
  }
  return kOk;
}

std::string Usage() {
  return "nvidia-smi of an emulated GPU node (mete)\n"
         "\n"
         "  nvidia-smi [-i ID] [-l SECONDS]                        a summary and the processes\n"
         "  nvidia-smi -L                                          the GPUs and their UUIDs\n"
         "  nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]\n"
         "  nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]\n"
         "  nvidia-smi -c DEFAULT|EXCLUSIVE_PROCESS|PROHIBITED     sets the compute mode; the node's owner may\n"
         "\n"
         "  -i, --id=ID          index, UUID or PCI bus id; several with commas\n"
         "  -l, --loop[=SEC]     again every SEC seconds (5), until interrupted; -lms, --loop-ms=MS in milliseconds\n"
         "  --help-query-gpu, --help-query-compute-apps            the fields\n"
         "\n"
         "Exit status: 0 done, 2 the line is wrong, 3 not available on this GPU, 4 no permission, 6 nothing found, 9 "
         "the\n"
         "driver does not answer, 12 no libnvidia-ml.so.1, 13 not built, 15 a GPU is lost, 255 something else.\n"
         "-q, topo, mig, nvlink, compute-policy and dmon are not built yet.\n";
}

}  // namespace mete::emulator::smi
