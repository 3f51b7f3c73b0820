#include <algorithm>

#include "lab/load/latencies.h"
#include "lab/load/processes.h"

namespace mete::lab {

namespace {

// The other fields are the same in every process.
constexpr const char* kAdded[] = {"processes", "kernels", "gpu_ms", "bytes", "blocks", "requests", "rate"};

void AppendNumbers(const Json& result, const char* field, std::vector<double>* numbers) {
  if (!result.contains(field)) return;
  for (const Json& number : result[field]) numbers->push_back(number.get<double>());
}

}  // namespace

Json SumResults(const std::vector<Json>& results) {
  Json sum = results[0];
  for (const char* field : kAdded) {
    if (!sum.contains(field)) continue;
    bool whole = sum[field].is_number_integer();
    double total = 0;
    uint64_t count = 0;
    for (const Json& result : results) {
      total += result[field].get<double>();
      count += whole ? result[field].get<uint64_t>() : 0;
    }
    if (whole) {
      sum[field] = count;
    } else {
      sum[field] = total;
    }
  }
  for (const Json& result : results) {
    if (sum.contains("seconds"))
      sum["seconds"] = std::max(sum["seconds"].get<double>(), result["seconds"].get<double>());
    if (sum.contains("largest_backlog")) {
      sum["largest_backlog"] =
          std::max(sum["largest_backlog"].get<uint64_t>(), result["largest_backlog"].get<uint64_t>());
    }
    // What a later hog was refused with, if the first was not.
    if (sum.contains("error") && sum["error"].is_null() && !result["error"].is_null()) {
      sum["error"] = result["error"];
      sum["error_code"] = result["error_code"];
    }
  }
  if (sum.contains("responses")) {
    std::vector<double> responses, services;
    for (const Json& result : results) {
      AppendNumbers(result, "responses", &responses);
      AppendNumbers(result, "services", &services);
    }
    sum["response_ms"] = Summary(responses);
    sum["service_ms"] = Summary(services);
    sum.erase("responses");
    sum.erase("services");
  }
  if (sum.contains("free")) sum["free"] = results.back()["free"];
  return sum;
}

}  // namespace mete::lab
