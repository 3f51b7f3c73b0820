#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/table.h"
#include "base/text.h"
#include "cli/command.h"
#include "mechanism/mig/mig.h"

namespace mete::cli {
namespace {

constexpr size_t kWidestStrip = 100, kNarrowestStrip = 20;

TopShare ShareOn(const Json& share, const Json& gpu) {
  const Json& compute = gpu["compute"];
  TopShare part;
  part.name = share["name"].get<std::string>();
  part.quota_bytes = gpu["quota_bytes"].get<uint64_t>();
  part.promised = gpu["quota_asked"].get<bool>();
  part.used_bytes = gpu["used_bytes"].get<uint64_t>();
  part.mode = compute["mode"].get<std::string>();
  if (compute.contains("percent")) part.percent = compute["percent"].get<double>();
  part.processes = share["processes"].get<uint64_t>();
  if (compute.contains("measured_percent") && part.processes != 0) {
    part.measured = compute["measured_percent"].get<double>();
    part.over_seconds = compute["measured_over_seconds"].get<double>();
  }
  for (const Json& promise : gpu["promises"]) {
    if (promise["asked"].get<bool>() && !promise["kept"].get<bool>())
      part.broken.push_back(promise["promise"].get<std::string>());
  }
  return part;
}

TopGpu Look(const nvml::Device& device) {
  TopGpu gpu;
  gpu.index = device.index();
  gpu.uuid = device.uuid();
  gpu.name = device.name();
  if (const auto memory = device.Memory(); memory.ok()) {
    gpu.memory = *memory;
  } else if (!nvml::Unsupported(memory.status())) {
    gpu.trouble = Message(memory.status());
  }
  if (const auto use = device.Use(); use.ok()) gpu.busy_percent = use->gpu;
  return gpu;
}

std::string Cells(size_t count, std::string_view glyph) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += glyph;
  return text;
}

// Left-aligned in exactly `cells` columns, the last of them a space if there is more than one: names do not touch.
std::string Cut(const std::string& name, size_t cells) {
  if (cells < 2) return Cells(cells, " ");
  const size_t room = cells - 1;
  std::string text = name.size() <= room ? name : name.substr(0, room);
  return text + std::string(cells - text.size(), ' ');
}

std::string TimeOf(const TopShare& share) {
  return share.percent ? fmt::format("{:g} % {}", *share.percent, share.mode) : share.mode;
}

std::string MemoryOf(const TopShare& share) {
  return fmt::format("{} of {}{}", SizeText(share.used_bytes), SizeText(share.quota_bytes),
                     share.promised ? "" : " cap");
}

std::string UsedTimeOf(const TopShare& share) {
  return share.measured ? fmt::format("{:g} % in {:.0f} s", *share.measured, std::max(share.over_seconds, 1.0)) : "-";
}

// Parts joined by `between`, broken into lines of at most `width` columns where it can be; the second and later lines
// are indented.
std::string Lines(const std::vector<std::string>& parts, std::string_view between, size_t width) {
  std::string text;
  size_t line = 0;
  for (const std::string& part : parts) {
    if (line != 0 && line + between.size() + part.size() > width) {
      text += "\n    ";
      line = 4;
    } else if (line != 0) {
      text += between;
      line += between.size();
    }
    text += part;
    line += part.size();
  }
  return text + "\n";
}

std::string TitleOf(const TopGpu& gpu, size_t width) {
  std::vector<std::string> parts = {fmt::format("GPU {}  {}{}", gpu.index, gpu.name, gpu.memory ? "," : "")};
  if (gpu.memory) {
    parts.push_back(fmt::format("{}: {} promised,", SizeText(gpu.memory->total.count), SizeText(gpu.PromisedBytes())));
    parts.push_back(fmt::format("{} used,", SizeText(gpu.memory->used.count)));
    parts.push_back(fmt::format("{} to be had{}", SizeText(gpu.FreeBytes()), gpu.busy_percent ? ";" : ""));
  }
  if (gpu.busy_percent) parts.push_back(fmt::format("busy {} %", *gpu.busy_percent));
  return Lines(parts, " ", width);
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    longest = std::max(longest, end - begin);
  }
  return longest;
}

// A share without a table, for where a table has no room.
std::string ShareLines(const TopShare& share, size_t width) {
  std::vector<std::string> parts = {share.name + ":", MemoryOf(share) + ",", TimeOf(share) + ","};
  if (share.measured) parts.push_back(UsedTimeOf(share) + ",");
  parts.push_back(fmt::format("{} {}", share.processes, share.processes == 1 ? "process" : "processes"));
  if (!share.broken.empty()) {
    parts.back() += ";";
    parts.push_back("not kept: " + JoinNames(share.broken, "and"));
  }
  return "  " + Lines(parts, " ", width < 2 ? 0 : width - 2);
}

std::string SharesText(const TopGpu& gpu, size_t width) {
  Table table({{"SHARE"},
               {"MEMORY", Align::kRight},
               {"TIME"},
               {"TIME USED", Align::kRight},
               {"PROCESSES", Align::kRight},
               {"NOT KEPT", Align::kLeft, true}});
  for (const TopShare& share : gpu.shares) {
    table.AddRow({share.name, MemoryOf(share), TimeOf(share), UsedTimeOf(share), std::to_string(share.processes),
                  share.broken.empty() ? "-" : JoinNames(share.broken, "and")});
  }
  const auto foreign = [](const TopForeigner& one) { return fmt::format("process {} ({})", one.pid, one.program); };
  for (const TopForeigner& one : gpu.foreigners) {
    table.AddRow({"(no share)", SizeText(one.used_bytes), "", "", "1", foreign(one)});
  }
  if (table.empty()) return "";
  std::string text = table.Render(width, 2);
  if (width == 0 || LongestLine(text) <= width) return text;
  text.clear();
  for (const TopShare& share : gpu.shares) text += ShareLines(share, width);
  for (const TopForeigner& one : gpu.foreigners) {
    text += "  " + Lines({"(no share):", SizeText(one.used_bytes) + ",", foreign(one)}, " ", width < 2 ? 0 : width - 2);
  }
  return text;
}

std::string GpuText(const TopGpu& gpu, size_t width, Glyphs glyphs) {
  std::string text = TitleOf(gpu, width);
  if (!gpu.trouble.empty()) text += fmt::format("  {}\n", gpu.trouble);
  if (gpu.memory) {
    const Strip strip = StripOf(gpu, std::clamp(width < 4 ? 0 : width - 4, kNarrowestStrip, kWidestStrip), glyphs);
    text += fmt::format("  {}\n  {}\n", strip.cells, strip.names);
  }
  return text + SharesText(gpu, width);
}

void AddInstances(const nvml::Device& device, TopGpu* gpu) {
  const auto mig = device.Mig();
  const auto board = mechanism::MigBoardOf(device);
  if (!mig.ok() || mig->current != nvml::MigMode::kEnabled || !board.ok()) return;
  const auto instances = device.GpuInstances();
  if (!instances.ok()) return;
  gpu->slices = (*board)->memory_slices;
  for (const nvml::GpuInstance& instance : *instances) {
    if (const auto place = mechanism::PlaceOf(**board, instance); place) {
      gpu->instances.push_back({place->profile, place->start, place->size, {}, 0});
    }
  }
  std::sort(gpu->instances.begin(), gpu->instances.end(),
            [](const TopInstance& a, const TopInstance& b) { return a.start < b.start; });
}

void Occupy(const TopShare& share, TopInstance* instance) {
  instance->share = share.name;
  if (share.quota_bytes > 0) {
    instance->used = std::min(1.0, static_cast<double>(share.used_bytes) / static_cast<double>(share.quota_bytes));
  }
}

Strip StripOfSlices(const TopGpu& gpu, size_t width, Glyphs glyphs) {
  const bool plain = glyphs == Glyphs::kAscii;
  const std::string_view full = plain ? "#" : "█", kept = plain ? "-" : "░", loose = plain ? "x" : "▒";
  const std::string_view hole = plain ? "." : "·", edge = plain ? "|" : "│";
  Strip strip;
  if (width < 3) return strip;
  const size_t inner = width - 2;
  const auto cell_of = [&gpu, inner](int slice) {
    return inner * static_cast<size_t>(std::min(slice, gpu.slices)) / static_cast<size_t>(gpu.slices);
  };
  strip.cells += edge;
  strip.names += " ";
  size_t at = 0;
  for (const TopInstance& one : gpu.instances) {
    const size_t begin = std::max(at, cell_of(one.start)), end = std::max(begin, cell_of(one.start + one.size));
    strip.cells += Cells(begin - at, hole);
    strip.names += Cut("", begin - at);
    const size_t cells = end - begin, body = cells == 0 ? 0 : cells - 1;  // its last cell is its edge
    const size_t filled = std::min(body, static_cast<size_t>(std::llround(one.used * static_cast<double>(cells))));
    strip.cells += Cells(filled, full) + Cells(body - filled, one.share.empty() ? loose : kept);
    strip.cells += Cells(cells - body, edge);
    strip.names += Cut(one.share.empty() ? one.profile : one.share, cells);
    at = end;
  }
  strip.cells += Cells(inner - at, hole) + std::string(edge);
  strip.names += Cut(inner > at ? "free" : "", inner - at);
  while (!strip.names.empty() && strip.names.back() == ' ') strip.names.pop_back();
  return strip;
}

}  // namespace

uint64_t TopGpu::PromisedBytes() const {
  uint64_t sum = 0;
  for (const TopShare& share : shares) sum += share.promised ? share.quota_bytes : 0;
  return sum;
}

uint64_t TopGpu::FreeBytes() const {
  uint64_t taken = PromisedBytes();
  for (const TopShare& share : shares) taken += share.promised ? 0 : share.used_bytes;
  for (const TopForeigner& foreigner : foreigners) taken += foreigner.used_bytes;
  if (!memory || taken >= memory->total.count - memory->reserved.count) return 0;
  return memory->total.count - memory->reserved.count - taken;
}

StatusOr<Top> TakeTop(const nvml::Library& library, const Json& list) {
  Top top;
  top.emulated = library.emulated();
  top.driver_version = library.driver_version();
  METE_ASSIGN_OR_RETURN(const auto devices, library.Devices());
  if (devices.empty()) return Lacks("the driver {} shows no GPU; `mete inventory` says more", top.driver_version);
  for (const auto& device : devices) {
    top.gpus.push_back(Look(*device));
    AddInstances(*device, &top.gpus.back());
  }
  for (TopGpu& gpu : top.gpus) {
    for (const Json& share : list["shares"]) {
      for (const Json& part : share["gpus"]) {
        if (part["uuid"].get<std::string>() != gpu.uuid) continue;
        gpu.shares.push_back(ShareOn(share, part));
        if (!part.contains("instance")) continue;
        const int start = part["instance"]["start"].get<int>();
        const auto profile = part["instance"]["profile"].get<std::string>();
        for (TopInstance& one : gpu.instances) {
          if (one.start == start && one.profile == profile) Occupy(gpu.shares.back(), &one);
        }
      }
    }
    std::sort(gpu.shares.begin(), gpu.shares.end(),
              [](const TopShare& a, const TopShare& b) { return a.name < b.name; });
    for (const Json& one : list["foreign"]) {
      if (one["gpu"].get<uint32_t>() != gpu.index) continue;
      gpu.foreigners.push_back(
          {one["pid"].get<uint32_t>(), one["program"].get<std::string>(), one["used_bytes"].get<uint64_t>()});
    }
  }
  return top;
}

Strip StripOf(const TopGpu& gpu, size_t width, Glyphs glyphs) {
  if (gpu.slices > 0) return StripOfSlices(gpu, width, glyphs);
  const bool plain = glyphs == Glyphs::kAscii;
  const std::string_view full = plain ? "#" : "█", kept = plain ? "-" : "░", loose = plain ? "x" : "▒";
  const std::string_view hole = plain ? "." : "·", edge = plain ? "|" : "│";
  Strip strip;
  if (!gpu.memory || gpu.memory->total.count == 0 || width < 3) return strip;
  const size_t inner = width - 2;
  const auto total = static_cast<double>(gpu.memory->total.count);
  // Ends of blocks are rounded, not their lengths, so that the line is as long as the memory.
  double at = 0;
  size_t cell = 0;
  const auto block = [&](uint64_t bytes) {
    at = std::min(at + static_cast<double>(bytes), total);
    const size_t end = static_cast<size_t>(std::llround(at / total * static_cast<double>(inner)));
    const size_t cells = end - cell;
    cell = end;
    return cells;
  };
  strip.cells += edge;
  strip.names += " ";
  uint64_t outside = 0;
  for (const TopShare& share : gpu.shares) {
    if (!share.promised) {
      outside += share.used_bytes;
      continue;
    }
    const size_t cells = block(share.quota_bytes);
    const double part =
        share.quota_bytes == 0 ? 0 : static_cast<double>(share.used_bytes) / static_cast<double>(share.quota_bytes);
    const size_t filled = std::min(cells, static_cast<size_t>(std::llround(part * static_cast<double>(cells))));
    // Its last cell is its edge, so that blocks can be told apart.
    strip.cells += Cells(std::min(filled, cells == 0 ? 0 : cells - 1), full);
    strip.cells += Cells(cells == 0 ? 0 : cells - 1 - std::min(filled, cells - 1), kept);
    strip.cells += Cells(cells == 0 ? 0 : 1, edge);
    strip.names += Cut(share.name, cells);
  }
  for (const TopForeigner& foreigner : gpu.foreigners) outside += foreigner.used_bytes;
  const size_t without = block(outside);
  strip.cells += Cells(without, loose);
  strip.names += Cut("held", without);
  const size_t empty = inner - cell;
  strip.cells += Cells(empty, hole);
  strip.names += Cut("free", empty);
  strip.cells += edge;
  strip.names.erase(strip.names.find_last_not_of(' ') + 1);
  return strip;
}

std::string TopText(const Top& top, size_t width, Glyphs glyphs) {
  std::string text;
  for (const TopGpu& gpu : top.gpus) text += (text.empty() ? "" : "\n") + GpuText(gpu, width, glyphs);
  return fmt::format("{}driver {}\n\n{}", top.emulated ? "emulated; " : "", top.driver_version, text);
}

Json TopJson(const Top& top) {
  Json json;
  json["emulated"] = top.emulated;
  json["driver_version"] = top.driver_version;
  json["gpus"] = Json::array();
  for (const TopGpu& gpu : top.gpus) {
    Json one;
    one["index"] = gpu.index;
    one["uuid"] = gpu.uuid;
    one["name"] = gpu.name;
    one["total_bytes"] = gpu.memory ? Json(gpu.memory->total.count) : Json();
    one["used_bytes"] = gpu.memory ? Json(gpu.memory->used.count) : Json();
    one["promised_bytes"] = gpu.PromisedBytes();
    one["free_bytes"] = gpu.memory ? Json(gpu.FreeBytes()) : Json();
    one["busy_percent"] = gpu.busy_percent ? Json(*gpu.busy_percent) : Json();
    if (!gpu.trouble.empty()) one["trouble"] = gpu.trouble;
    one["shares"] = Json::array();
    for (const TopShare& share : gpu.shares) {
      Json part = {{"name", share.name},
                   {"quota_bytes", share.quota_bytes},
                   {"promised", share.promised},
                   {"used_bytes", share.used_bytes},
                   {"mode", share.mode},
                   {"percent", share.percent ? Json(*share.percent) : Json()},
                   {"measured_percent", share.measured ? Json(*share.measured) : Json()},
                   {"measured_over_seconds", share.measured ? Json(share.over_seconds) : Json()},
                   {"processes", share.processes},
                   {"not_kept", share.broken}};
      one["shares"].push_back(std::move(part));
    }
    if (gpu.slices > 0) {
      one["memory_slices"] = gpu.slices;
      one["instances"] = Json::array();
      for (const TopInstance& at : gpu.instances) {
        one["instances"].push_back({{"profile", at.profile},
                                    {"start", at.start},
                                    {"size", at.size},
                                    {"share", at.share.empty() ? Json() : Json(at.share)}});
      }
    }
    one["without_share"] = Json::array();
    for (const TopForeigner& foreigner : gpu.foreigners) {
      one["without_share"].push_back(
          {{"pid", foreigner.pid}, {"program", foreigner.program}, {"used_bytes", foreigner.used_bytes}});
    }
    json["gpus"].push_back(std::move(one));
  }
  return json;
}

}  // namespace mete::cli
