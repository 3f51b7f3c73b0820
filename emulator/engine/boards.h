// From the names a person writes after `--gpus` to what the engine needs to know of each GPU: the board catalogue plus
// data/emulator.yaml (SM limits, clocks, driver branches), both embedded. Pure functions; any thread.
#ifndef METE_EMULATOR_ENGINE_BOARDS_H_
#define METE_EMULATOR_ENGINE_BOARDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "emulator/engine/engine.h"

namespace mete::emulator {

// "A100-SXM4-40GB,T4" or "2xT4" → the GPUs in that order. `node_root` goes into the UUIDs: the same node and index have
// the same UUID each time. `more`: a folder with further boards, or empty: its boards.yaml and emulator.yaml have the
// formats of data/ and hold only what is new; a board of theirs goes before one of the same name. Usage for an empty
// list, more than kMaxGpus, or a file that is wrong; NoSuch names the nearest boards.
StatusOr<std::vector<EngineSettings::Gpu>> GpusByName(std::string_view names, const std::string& node_root,
                                                      const std::string& more = {});

struct DriverBranch {
  int branch = 0;       // 580
  std::string version;  // "580.65.06"
  uint32_t cuda = 0;    // 13000
};
// NoSuch, listing the branches, for one that is not there.
StatusOr<DriverBranch> FindDriver(std::string_view branch);

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".
std::string UuidText(const uint8_t (&uuid)[16]);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_BOARDS_H_
