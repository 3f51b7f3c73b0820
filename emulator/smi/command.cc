#include "emulator/smi/command.h"

#include <strings.h>
#include <time.h>

#include <algorithm>

#include "emulator/smi/details.h"
#include "emulator/smi/monitor.h"
#include "emulator/smi/table.h"
#include "emulator/smi/topology.h"
#include "emulator/smi/words.h"

namespace mete::emulator::smi {

namespace {

constexpr const char* kSliceWords[] = {"Default", "Short", "Medium", "Long"};

// `short_id`: "0000:07:00.0" and "07:00.0" mean "00000000:07:00.0".
bool Matches(const SmiGpu& gpu, const std::string& id) {
  const bool number = !id.empty() && std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (number && id == std::to_string(gpu.index)) return true;
  if (strcasecmp(id.c_str(), gpu.uuid.c_str()) == 0 || (!id.empty() && id == gpu.serial)) return true;
  return id.size() >= 7 && id.size() <= gpu.bus_id.size() &&
         strcasecmp(id.c_str(), gpu.bus_id.c_str() + (gpu.bus_id.size() - id.size())) == 0;
}

std::string TimeText(const char* format) {
  time_t now = time(nullptr);
  tm parts = {};
  localtime_r(&now, &parts);
  char text[64];
  strftime(text, sizeof(text), format, &parts);
  return text;
}

std::string MonitorTime(const std::string& when) {
  std::string text;
  for (const char c : when) text += (text.empty() ? "" : " ") + TimeText(c == 'D' ? "%Y%m%d" : "%H:%M:%S");
  return text;
}

// What the tool says when it has changed something.
std::string Done(const Change& change, const SmiGpu& gpu) {
  const auto on = [&] { return std::string(change.value != 0 ? "Enabled" : "Disabled"); };
  const auto low = static_cast<uint32_t>(change.value), high = static_cast<uint32_t>(change.value >> 32);
  const std::string of = " for GPU " + gpu.bus_id + ".\n";
  switch (change.setting) {
    case SmiSetting::kComputeMode: {
      constexpr const char* kNames[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
      return std::string("Set compute mode to ") + kNames[std::min<uint32_t>(low, 3)] + of;
    }
    case SmiSetting::kPersistence: return on() + " persistence mode" + of;
    case SmiSetting::kPowerLimit:
      return "Power limit for GPU " + gpu.bus_id + " was set to " + WattText(low) + " from " +
             WattText(gpu.power_limit_mw) + ".\n";
    case SmiSetting::kApplicationClocks:
      return "Applications clocks set to \"(MEM " + std::to_string(high) + ", SM " + std::to_string(low) + ")\"" + of;
    case SmiSetting::kResetApplicationClocks: return "Reset applications clocks to default" + of;
    case SmiSetting::kLockedClocks:
      return "GPU clocks set to \"(gpuClkMin " + std::to_string(low) + ", gpuClkMax " + std::to_string(high) + ")\"" +
             of;
    case SmiSetting::kResetLockedClocks: return "Reset GPU clocks to default" + of;
    case SmiSetting::kEcc: return on() + " ECC support" + of;
    case SmiSetting::kClearEcc:
      return std::string("Reset ") + (low == 0 ? "volatile" : "aggregate") + " ECC errors to zero" + of;
    case SmiSetting::kAccounting: return on() + " Accounting Mode" + of;
    case SmiSetting::kClearAccounting: return "Cleared Accounted PIDs" + of;
    case SmiSetting::kTimeSlice:
      return std::string("Successfully set timeslice to ") + kSliceWords[std::min<uint32_t>(low, 3)] + of;
    case SmiSetting::kReset: return "GPU " + gpu.bus_id + " was successfully reset.\n";
  }
  return "";
}

Exit Apply(const Request& request, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, SmiSource* source,
           std::string* text, std::string* message) {
  for (const Change& change : request.changes) {
    for (size_t index : chosen) {
      const SmiGpu& gpu = snapshot.gpus[index];
      if (const Exit code = source->Set(gpu.index, change.setting, change.value, message); code != kOk) return code;
      *text += Done(change, gpu);
    }
    if (change.setting == SmiSetting::kEcc) *text += "Reset the GPU, or reboot, for it to take effect.\n";
  }
  *text += "All done.\n";
  return kOk;
}

std::string Policies(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen) {
  const std::string rule = "+-------------------------------------+\n";
  std::string text = rule +
                     "| GPU compute policies:               |\n| GPU  Name            Value          |\n"
                     "|=====================================|\n";
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    const bool has = gpu.time_slice_class && *gpu.time_slice_class < 4;
    char line[64];
    snprintf(line, sizeof(line), "| %3u  %-15s %-15s|\n", gpu.index, "Timeslice",
             has ? kSliceWords[*gpu.time_slice_class] : "Not Supported");
    text += line;
  }
  return text + rule;
}

std::string LimitText(uint64_t bytes) { return bytes == UINT64_MAX ? "max" : std::to_string(bytes >> 20) + " MiB"; }

Exit Limits(const Request& request, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, SmiSource* source,
            std::string* text, std::string* message) {
  for (size_t index : chosen) {
    const SmiGpu& gpu = snapshot.gpus[index];
    if (request.action == Action::kSetLimits) {
      if (const Exit code = source->SetLimits(gpu.index, request.folder, request.limits, message); code != kOk)
        return code;
      *text += "Set memory limits of " + request.folder + " for GPU " + gpu.bus_id + ".\n";
      continue;
    }
    SmiLimits limits;
    if (const Exit code = source->ReadLimits(gpu.index, request.folder, &limits, message); code != kOk) return code;
    if (chosen.size() > 1) *text += "GPU " + gpu.bus_id + "\n";
    *text += "namespace: " + request.folder + "\nsoft limit: " + LimitText(limits.soft) +
             "\nhard limit: " + LimitText(limits.hard) + "\ncurrent used: " + LimitText(limits.used) + "\n";
  }
  return kOk;
}

Exit NoMig(std::string* message) {
  *message = "this libnvidia-ml.so.1 knows nothing of MIG";
  return kNotAvailable;
}

unsigned Wanted(const Request& request) {
  if (request.action == Action::kProcessMonitor) return SmiSource::kUsage;
  const bool accounting = request.action == Action::kDetails ||
                          (request.action == Action::kQuery && request.table == QueryTable::kAccountedApps);
  return accounting ? SmiSource::kAccounting : 0;
}

}  // namespace

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

Exit Answer(const Request& request, SmiSource* source, std::string* text, std::string* message) {
  SmiSnapshot snapshot;
  if (Exit code = source->Read(Wanted(request), &snapshot, message); code != kOk) return code;
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
  const std::string date = TimeText("%a %b %e %H:%M:%S %Y");
  switch (request.action) {
    case Action::kTable:
      *text += Table(snapshot, chosen, date);
      if (source->emulated()) *text += "This is an emulated GPU node (mete).\n";
      break;
    case Action::kList: *text += List(snapshot, chosen); break;
    case Action::kDetails:
      *text += (request.xml ? DetailsXml : Details)(snapshot, chosen, request.sections, date);
      break;
    case Action::kQuery: {
      CsvFormat format = request.format.value_or(CsvFormat());
      format.header = format.header && request.first;
      if (!Query(request.table, snapshot, chosen, request.fields, format, text, &unknown)) {
        *message = "Field \"" + unknown + "\" is not a valid field to query.";
        return kInvalidArgument;
      }
      break;
    }
    case Action::kSet:
      if (!request.mig_mode) return Apply(request, snapshot, chosen, source, text, message);
      if (source->mig() == nullptr) return NoMig(message);
      return SwitchMig(*request.mig_mode, snapshot, chosen, source->mig(), text, message);
    case Action::kMig:
      if (source->mig() == nullptr) return NoMig(message);
      return AnswerMig(request.mig, snapshot, chosen, source->mig(), text, message);
    case Action::kTopology:
    case Action::kPeers: {
      SmiTopology topology;
      if (Exit code = source->ReadTopology(snapshot.gpus.size(), &topology, message); code != kOk) return code;
      *text += request.action == Action::kTopology ? TopologyMatrix(topology) : PeerMatrix(topology, request.peer_kind);
      break;
    }
    case Action::kDeviceMonitor:
      if (request.first) *text += DeviceHeader(request.metrics, request.when);
      *text += DeviceLines(snapshot, chosen, request.metrics, MonitorTime(request.when));
      break;
    case Action::kProcessMonitor:
      if (request.first) *text += ProcessHeader(request.metrics, request.when);
      *text += ProcessLines(snapshot, chosen, request.metrics, MonitorTime(request.when));
      break;
    case Action::kComputePolicy:
      if (!request.changes.empty()) return Apply(request, snapshot, chosen, source, text, message);
      *text += Policies(snapshot, chosen);
      break;
    case Action::kReadLimits:
    case Action::kSetLimits:
      if (const Exit code = Limits(request, snapshot, chosen, source, text, message); code != kOk) return code;
      break;
    case Action::kLinkStatus: *text += LinkStatus(snapshot, chosen); break;
    case Action::kDrainState:
      for (size_t index : chosen) {
        *text += "The current drain state of GPU " + snapshot.gpus[index].bus_id + " is: not draining.\n";
      }
      break;
    case Action::kHelp:
    case Action::kHelpFields: break;
  }
  // A query goes on over the GPUs that answer, and says with its status that one does not.
  const auto lost = std::find_if(chosen.begin(), chosen.end(), [&](size_t index) { return snapshot.gpus[index].lost; });
  if (lost == chosen.end() || request.action == Action::kList) return kOk;
  *message = "GPU " + snapshot.gpus[*lost].bus_id + " is lost. Reboot the system to recover this GPU";
  return kGpuLost;
}

std::string Usage() {
  return R"(nvidia-smi of an emulated GPU node (mete)

  nvidia-smi [-i ID] [-l [SECONDS]]                      a summary and the processes
  nvidia-smi -L                                          the GPUs and their UUIDs
  nvidia-smi -q [-x] [-d SECTIONS] [-i ID]               everything about each GPU, as text or XML
  nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]
             --query-compute-apps=, --query-accounted-apps=, --query-remapped-rows=, --query-supported-clocks=
  nvidia-smi dmon|pmon [-i ID] [-s METRICS] [-d SECONDS] [-c COUNT] [-o DT]
                                                         a line a GPU, or a process, again and again
  nvidia-smi topo -m | -p2p r|w|n|a|p                    how the GPUs hang together
  nvidia-smi mig COMMAND [-i ID] [-gi ID] [-ci ID]       GPU instances and compute instances:
    -lgip, -lgipp, -lgi     their profiles, placements; the GPU instances there are
    -lcip, -lcipp, -lci     the same of compute instances
    -cgi PROFILE[:START],… [-C]   make GPU instances, with -C each with its compute instance; -dgi ends them
    -cci [PROFILE[:START],…]      make compute instances; -dci ends them
  nvidia-smi nvlink -s                                   the state of NVLinks
  nvidia-smi drain -p PCI -q                             whether a GPU is taken out of use
  nvidia-smi compute-policy [-l] [--set-timeslice 0|1|2|3]
  nvidia-smi memory-limits --get|--set -n CGROUP [--soft-limit MIB] [--hard-limit MIB|max] [-i ID]
                                                         memory of the processes of a cgroup; driver 615

The node's owner may, on all GPUs or those of -i:
  -c DEFAULT|EXCLUSIVE_PROCESS|PROHIBITED  compute mode         -pm 0|1         persistence mode
  -pl WATTS                                power limit          -ac MEM,GRAPHICS | -rac   applications clocks in MHz
  -lgc MIN,MAX | -rgc                      locked GPU clocks    -e 0|1          ECC, after a reset
  -p 0|1                                   reset ECC counters   -am 0|1 | -caa  accounting
  -r                                       reset the GPU; not while a process uses it
  -mig 0|1                                 MIG mode; boards older than Hopper are reset for it

  -i, --id=ID          index, UUID or PCI bus id; several with commas
  -f, --filename=FILE  write there
  -l, --loop[=SEC]     again every SEC seconds (5), until interrupted; -lms, --loop-ms=MS in milliseconds
  --help-query-gpu, --help-query-compute-apps, …         the fields

Exit status: 0 done, 2 the line is wrong, 3 not available on this GPU, 4 no permission, 6 nothing found, 9 the
driver does not answer, 12 no libnvidia-ml.so.1, 13 not built, 15 a GPU is lost, 255 something else.
vgpu is not built yet.
)";
}

}  // namespace mete::emulator::smi
