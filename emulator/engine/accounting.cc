#include "emulator/engine/accounting.h"

#include <algorithm>

namespace mete::emulator {

void Accounting::ContextBegan(uint32_t pid, uint64_t now_ns, uint64_t wall_us, uint64_t held) {
  Live& live = live_[pid];
  if (live.contexts++ > 0) return;
  live.counted = enabled_;
  live.began_ns = now_ns;
  live.began_us = wall_us;
  live.memory = live.most = held;
}

void Accounting::MemoryChanged(uint32_t pid, int64_t bytes) {
  const auto found = live_.find(pid);
  if (found == live_.end()) return;
  found->second.memory += static_cast<uint64_t>(bytes);
  found->second.most = std::max(found->second.most, found->second.memory);
}

void Accounting::Used(uint32_t pid, uint64_t busy_ns, uint64_t memory_busy_ns) {
  const auto found = live_.find(pid);
  if (found == live_.end()) return;
  found->second.busy_ns += busy_ns;
  found->second.memory_busy_ns += memory_busy_ns;
}

void Accounting::ContextEnded(uint32_t pid, uint64_t now_ns) {
  const auto found = live_.find(pid);
  if (found == live_.end() || --found->second.contexts > 0) return;
  if (found->second.counted) {
    AccountingRecord record = Record(pid, found->second, now_ns);
    record.running = 0;
    record.milliseconds = (now_ns - found->second.began_ns) / 1'000'000;
    std::erase_if(ended_, [&](const AccountingRecord& old) { return old.pid == pid; });  // a number used again
    ended_.push_back(record);
    if (ended_.size() > kMostAccounted) ended_.pop_front();
  }
  live_.erase(found);
}

AccountingRecord Accounting::Record(uint32_t pid, const Live& live, uint64_t now_ns) {
  const uint64_t life = std::max<uint64_t>(1, now_ns - std::min(now_ns, live.began_ns));
  const auto percent = [&](uint64_t ns) {
    return static_cast<uint8_t>(std::min(100.0, 100.0 * static_cast<double>(ns) / static_cast<double>(life) + 0.5));
  };
  return {pid, percent(live.busy_ns), percent(live.memory_busy_ns), 1, 0, live.most, 0, live.began_us};
}

std::vector<AccountingRecord> Accounting::Records(uint64_t now_ns, const std::vector<ProcessInfo>& present) const {
  std::vector<AccountingRecord> records(ended_.begin(), ended_.end());
  for (const auto& [pid, live] : live_) {
    if (!live.counted) continue;
    Live total = live;
    for (const ProcessInfo& process : present) {
      if (process.pid != pid) continue;
      total.busy_ns += process.busy_ns;
      total.memory_busy_ns += process.memory_busy_ns;
    }
    std::erase_if(records, [p = pid](const AccountingRecord& old) { return old.pid == p; });
    records.push_back(Record(pid, total, now_ns));
  }
  if (records.size() > kMostAccounted) records.erase(records.begin(), records.end() - kMostAccounted);
  return records;
}

}  // namespace mete::emulator
