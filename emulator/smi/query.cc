#include "emulator/smi/query.h"

#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

#include "emulator/smi/fields.h"

namespace mete::emulator::smi {

Value Watts(const std::optional<uint32_t>& milliwatts) {
  if (!milliwatts) return {};
  char text[32];
  snprintf(text, sizeof(text), "%.2f", *milliwatts / 1000.0);
  return Value(text);
}

Value Now() {
  timeval now = {};
  gettimeofday(&now, nullptr);
  tm parts = {};
  localtime_r(&now.tv_sec, &parts);
  char date[64], text[96];
  strftime(date, sizeof(date), "%Y/%m/%d %H:%M:%S", &parts);
  snprintf(text, sizeof(text), "%s.%03d", date, static_cast<int>(now.tv_usec / 1000));
  return Value(text);
}

namespace {

// A row of the tables with several a GPU.
template <typename Item>
struct OfGpu {
  const SmiGpu* gpu;
  Item item;
};
using App = OfGpu<const SmiProcess*>;
using Accounted = OfGpu<const SmiAccounted*>;
struct Pair {
  uint32_t memory_mhz, sm_mhz;
};
using Clocks = OfGpu<Pair>;

// The fields that say whose row it is.
#define OF_GPU(Row)                                                                                               \
  {"timestamp", nullptr, nullptr, SMI_VALUE(Row, row, Now()), "when the values were read"},                       \
      {"gpu_name", nullptr, nullptr, SMI_VALUE(Row, row, Text(row.gpu->name)), "product name of its GPU"},        \
      {"gpu_bus_id", nullptr, nullptr, SMI_VALUE(Row, row, Text(row.gpu->bus_id)), "PCI bus id of its GPU"},      \
      {"gpu_serial", nullptr, nullptr, SMI_VALUE(Row, row, Text(row.gpu->serial)), "serial number of its GPU"}, { \
    "gpu_uuid", nullptr, nullptr, SMI_VALUE(Row, row, Text(row.gpu->uuid)), "identifier of its GPU"               \
  }

const std::vector<Field<App>>& AppFields() {
  static const std::vector<Field<App>> fields = {
      OF_GPU(App),
      {"pid", nullptr, nullptr, SMI_VALUE(App, row, Value(std::to_string(row.item->pid))), "process id"},
      {"process_name", "name", nullptr, SMI_VALUE(App, row, Text(row.item->name)), "program"},
      {"used_gpu_memory", "used_memory", "MiB", SMI_VALUE(App, row, Mib(row.item->used_bytes)),
       "device memory it holds"},
  };
  return fields;
}

const std::vector<Field<Accounted>>& AccountedFields() {
#define VALUE(expression) SMI_VALUE(Accounted, row, Value(std::to_string(expression)))
  static const std::vector<Field<Accounted>> fields = {
      OF_GPU(Accounted),
      {"vgpu_instance", nullptr, nullptr, SMI_VALUE(Accounted, row, Value()), "vGPU it ran on"},
      {"pid", nullptr, nullptr, VALUE(row.item->pid), "process id"},
      {"gpu_utilization", "gpu_util", "%", VALUE(row.item->gpu_percent), "of its life with a kernel running"},
      {"mem_utilization", "mem_util", "%", VALUE(row.item->memory_percent), "of its life with memory read or written"},
      {"max_memory_usage", "max_memory_used", "MiB", VALUE(row.item->most_memory_bytes >> 20), "most memory it held"},
      {"time", nullptr, "ms", VALUE(row.item->milliseconds), "how long it lived; 0 while it runs"},
  };
#undef VALUE
  return fields;
}

const std::vector<Field<OfGpu<int>>>& RemappedFields() {
  using Row = OfGpu<int>;
  static const std::vector<Field<Row>> fields = {
      OF_GPU(Row),
      {"remapped_rows.correctable", "correctable", nullptr, SMI_VALUE(Row, row, Number(row.gpu->remapped_corrected)),
       "rows replaced for corrected errors"},
      {"remapped_rows.uncorrectable", "uncorrectable", nullptr,
       SMI_VALUE(Row, row, Number(row.gpu->remapped_uncorrected)), "rows replaced for an uncorrected error"},
      {"remapped_rows.pending", "pending", nullptr, SMI_VALUE(Row, row, Number(row.gpu->remap_pending)),
       "1: the next reset replaces rows"},
      {"remapped_rows.failure", "failure", nullptr, SMI_VALUE(Row, row, Number(row.gpu->remap_failed)),
       "1: replacing one failed"},
  };
  return fields;
}

const std::vector<Field<Clocks>>& ClockFields() {
  static const std::vector<Field<Clocks>> fields = {
      OF_GPU(Clocks),
      {"memory", "mem", "MHz", SMI_VALUE(Clocks, row, Value(std::to_string(row.item.memory_mhz))), "memory clock"},
      {"graphics", "gr", "MHz", SMI_VALUE(Clocks, row, Value(std::to_string(row.item.sm_mhz))), "graphics clock"},
  };
  return fields;
}
#undef OF_GPU

std::vector<std::string> Split(std::string_view list) {
  std::vector<std::string> words;
  while (true) {
    size_t comma = list.find(',');
    std::string_view word = list.substr(0, comma);
    while (!word.empty() && (word.front() == ' ' || word.front() == '\t')) word.remove_prefix(1);
    while (!word.empty() && (word.back() == ' ' || word.back() == '\t')) word.remove_suffix(1);
    words.emplace_back(word);
    if (comma == std::string_view::npos) return words;
    list.remove_prefix(comma + 1);
  }
}

template <typename Row>
bool Print(const SmiSnapshot& snapshot, const std::vector<Field<Row>>& fields, std::string_view list,
           const std::vector<Row>& rows, const CsvFormat& format, std::string* text, std::string* unknown) {
  std::vector<const Field<Row>*> columns;
  for (const std::string& word : Split(list)) {
    const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.Named(word); });
    if (found == fields.end()) {
      *unknown = word;
      return false;
    }
    columns.push_back(&*found);
  }
  const auto line = [&](auto cell) {
    for (size_t i = 0; i < columns.size(); ++i) *text += (i == 0 ? "" : ", ") + cell(*columns[i]);
    *text += '\n';
  };
  if (format.header) {
    line([](const Field<Row>& field) {
      return std::string(field.name) + (field.unit != nullptr ? std::string(" [") + field.unit + "]" : "");
    });
  }
  for (const Row& row : rows) {
    line([&](const Field<Row>& field) {
      Value value = field.value(snapshot, row);
      bool unit = format.units && value.known && field.unit != nullptr;
      return value.text + (unit ? std::string(" ") + field.unit : "");
    });
  }
  return true;
}

template <typename Row>
std::string Help(const char* option, const std::vector<Field<Row>>& fields) {
  std::string text = std::string("Fields of ") + option + ":\n\n";
  for (const Field<Row>& field : fields) {
    text += "\"" + std::string(field.name) + "\"";
    for (const std::string& other : Split(field.other == nullptr ? "" : field.other)) {
      for (size_t at = 0; !other.empty() && at != std::string::npos; at = other.find(' ', at + 1)) {
        const size_t from = at == 0 ? 0 : at + 1;
        text += " or \"" + other.substr(from, other.find(' ', from) - from) + "\"";
      }
    }
    text +=
        "\n    " + std::string(field.meaning) + (field.unit != nullptr ? std::string(", in ") + field.unit : "") + "\n";
  }
  return text;
}

}  // namespace

bool ParseFormat(std::string_view text, CsvFormat* format) {
  bool csv = false;
  for (const std::string& word : Split(text)) {
    if (word == "csv") {
      csv = true;
    } else if (word == "noheader") {
      format->header = false;
    } else if (word == "nounits") {
      format->units = false;
    } else {
      return false;
    }
  }
  return csv;
}

bool Query(QueryTable table, const SmiSnapshot& snapshot, const std::vector<size_t>& chosen, std::string_view list,
           const CsvFormat& format, std::string* text, std::string* unknown) {
  const auto print = [&](const auto& fields, const auto& rows) {
    return Print(snapshot, fields, list, rows, format, text, unknown);
  };
  switch (table) {
    case QueryTable::kGpus: {
      std::vector<SmiGpu> rows;
      for (size_t gpu : chosen) rows.push_back(snapshot.gpus[gpu]);
      return print(GpuFields(), rows);
    }
    case QueryTable::kComputeApps: {
      std::vector<App> rows;
      for (size_t gpu : chosen) {
        for (const SmiProcess& process : snapshot.gpus[gpu].processes) rows.push_back({&snapshot.gpus[gpu], &process});
      }
      return print(AppFields(), rows);
    }
    case QueryTable::kAccountedApps: {
      std::vector<Accounted> rows;
      for (size_t gpu : chosen) {
        for (const SmiAccounted& process : snapshot.gpus[gpu].accounted) {
          rows.push_back({&snapshot.gpus[gpu], &process});
        }
      }
      return print(AccountedFields(), rows);
    }
    case QueryTable::kRemappedRows: {
      std::vector<OfGpu<int>> rows;
      for (size_t gpu : chosen) rows.push_back({&snapshot.gpus[gpu], 0});
      return print(RemappedFields(), rows);
    }
    case QueryTable::kSupportedClocks: {
      std::vector<Clocks> rows;
      for (size_t gpu : chosen) {
        for (uint32_t memory : snapshot.gpus[gpu].memory_clocks_mhz) {
          for (uint32_t sm : snapshot.gpus[gpu].sm_clocks_mhz) rows.push_back({&snapshot.gpus[gpu], {memory, sm}});
        }
      }
      return print(ClockFields(), rows);
    }
  }
  return false;
}

std::string FieldHelp(QueryTable table) {
  switch (table) {
    case QueryTable::kGpus: return Help("--query-gpu", GpuFields());
    case QueryTable::kComputeApps: return Help("--query-compute-apps", AppFields());
    case QueryTable::kAccountedApps: return Help("--query-accounted-apps", AccountedFields());
    case QueryTable::kRemappedRows: return Help("--query-remapped-rows", RemappedFields());
    case QueryTable::kSupportedClocks: return Help("--query-supported-clocks", ClockFields());
  }
  return {};
}

}  // namespace mete::emulator::smi
