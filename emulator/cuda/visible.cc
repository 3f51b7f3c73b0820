#include "emulator/cuda/visible.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

namespace mete::emulator::cuda {
namespace {

std::string UuidText(const uint8_t* uuid) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

bool IsPrefix(std::string_view beginning, const uint8_t* uuid) {
  const std::string full = UuidText(uuid);
  return !beginning.empty() && beginning.size() <= full.size() &&
         strncasecmp(beginning.data(), full.data(), beginning.size()) == 0;
}

// Cuts `word`, in any case, off the beginning of the text.
bool Cut(std::string_view word, std::string_view* text) {
  if (text->size() <= word.size() || strncasecmp(text->data(), word.data(), word.size()) != 0) return false;
  text->remove_prefix(word.size());
  return true;
}

bool WholeNumber(std::string_view text, uint32_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

class Choice {
 public:
  Choice(const std::vector<GpuInfo>& gpus, const std::vector<bool>& mig_mode, const std::vector<MigSeat>& seats,
         bool by_bus)
      : gpus_(gpus), mig_mode_(mig_mode), seats_(seats), ordered_(gpus.size()) {
    for (uint32_t i = 0; i < gpus.size(); ++i) ordered_[i] = i;
    if (by_bus) return;
    const auto speed = [&](uint32_t i) { return static_cast<uint64_t>(gpus[i].sm_count) * gpus[i].clock_khz; };
    std::stable_sort(ordered_.begin(), ordered_.end(), [&](uint32_t a, uint32_t b) { return speed(a) > speed(b); });
  }

  void AddAll() {
    for (const uint32_t gpu : ordered_) AddGpu(gpu);
  }

  // False: the entry names nothing, or not one thing only.
  bool AddEntry(std::string_view entry) {
    uint32_t index = 0;
    if (Cut("GPU-", &entry)) {
      const std::optional<uint32_t> gpu = FindGpu(entry);
      return gpu && AddGpu(*gpu);
    }
    if (Cut("MIG-", &entry)) {
      const MigSeat* seat = Cut("GPU-", &entry) ? FindByPlace(entry) : FindSeat(entry);
      return seat != nullptr && AddSeat(*seat);
    }
    return WholeNumber(entry, &index) && index < ordered_.size() && AddGpu(ordered_[index]);
  }

  // An entry that was there before makes the whole list invalid.
  bool repeated() const { return repeated_; }
  std::vector<VisibleDevice> Take() { return std::move(result_); }

 private:
  bool AddGpu(uint32_t gpu) {
    if (!mig_mode_[gpu]) {
      Add({gpu, std::nullopt});
      return true;
    }
    for (const MigSeat& seat : seats_) {
      if (seat.gpu == gpu && !Taken(seat)) Add({gpu, seat});
    }
    return true;
  }

  bool AddSeat(const MigSeat& seat) {
    const VisibleDevice device = {seat.gpu, seat};
    if (!Taken(seat) || std::find(result_.begin(), result_.end(), device) != result_.end()) Add(device);
    return true;
  }

  void Add(const VisibleDevice& device) {
    repeated_ = repeated_ || std::find(result_.begin(), result_.end(), device) != result_.end();
    if (result_.size() == kMostDevices || (device.mig && ++mig_devices_ > kMostMigDevices)) return;
    result_.push_back(device);
  }

  // Whether its GPU instance has a compute instance in the list.
  bool Taken(const MigSeat& seat) const {
    return std::any_of(result_.begin(), result_.end(), [&](const VisibleDevice& each) {
      return each.mig && each.gpu == seat.gpu && each.mig->gpu_instance == seat.gpu_instance;
    });
  }

  std::optional<uint32_t> FindGpu(std::string_view beginning) const {
    std::optional<uint32_t> found;
    for (const uint32_t gpu : ordered_) {
      if (!IsPrefix(beginning, gpus_[gpu].uuid)) continue;
      if (found) return std::nullopt;
      found = gpu;
    }
    return found;
  }

  const MigSeat* FindSeat(std::string_view beginning) const {
    const MigSeat* found = nullptr;
    for (const MigSeat& seat : seats_) {
      if (!IsPrefix(beginning, seat.uuid)) continue;
      if (found != nullptr) return nullptr;
      found = &seat;
    }
    return found;
  }

  // "UUID/1/0"
  const MigSeat* FindByPlace(std::string_view place) const {
    const size_t first = place.find('/'), second = place.find('/', first + 1);
    uint32_t gpu_instance = 0, compute_instance = 0;
    if (first == std::string_view::npos || second == std::string_view::npos ||
        !WholeNumber(place.substr(first + 1, second - first - 1), &gpu_instance) ||
        !WholeNumber(place.substr(second + 1), &compute_instance))
      return nullptr;
    const std::optional<uint32_t> gpu = FindGpu(place.substr(0, first));
    const auto found = std::find_if(seats_.begin(), seats_.end(), [&](const MigSeat& seat) {
      return gpu == seat.gpu && seat.gpu_instance == gpu_instance && seat.compute_instance == compute_instance;
    });
    return found == seats_.end() ? nullptr : &*found;
  }

  const std::vector<GpuInfo>& gpus_;
  const std::vector<bool>& mig_mode_;
  const std::vector<MigSeat>& seats_;
  std::vector<uint32_t> ordered_;  // GPUs as indices count them
  std::vector<VisibleDevice> result_;
  size_t mig_devices_ = 0;
  bool repeated_ = false;
};

}  // namespace

std::vector<VisibleDevice> VisibleDevices(const std::vector<GpuInfo>& gpus, const std::vector<bool>& mig_mode,
                                          const std::vector<MigSeat>& seats, const char* visible, const char* order) {
  Choice choice(gpus, mig_mode, seats, order != nullptr && std::string_view(order) == "PCI_BUS_ID");
  if (visible == nullptr) {
    choice.AddAll();
    return choice.Take();
  }
  for (std::string_view rest = visible; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view entry = rest.substr(0, comma);
    while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
    while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
    if (!choice.AddEntry(entry)) break;
    if (choice.repeated()) return {};
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return choice.Take();
}

}  // namespace mete::emulator::cuda
