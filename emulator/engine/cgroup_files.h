// The cgroup tree of an emulated node: plain folders and files below its sys root, with the names and contents that
// cgroup v2 documents. Nobody fills a new folder here and nothing keeps a list of processes right, so:
//
//   ROOT/cgroup.controllers          "dmem", for whoever looks whether the controller is there
//   ROOT/dmem.capacity               what each GPU has
//   FOLDER/cgroup.subtree_control    what was written to it: a line "+dmem" hands the controller to the folders below
//   FOLDER/cgroup.procs              what was written to it, a process a line
//   FOLDER/dmem.{max,min,current}    by the engine: at once when limits are set, within 50 ms when memory is charged
//
// A process is in the group that lists it, else in that of its nearest living ancestor that is listed. The kernel
// inherits membership at fork; here a process loses it when it was not listed itself and its listed ancestors have
// ended. Not thread-safe.
#ifndef METE_EMULATOR_ENGINE_CGROUP_FILES_H_
#define METE_EMULATOR_ENGINE_CGROUP_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "emulator/engine/cgroups.h"
#include "emulator/engine/client.h"

namespace mete::emulator {

// Below a node's root.
inline constexpr char kCgroupFolder[] = "sys/fs/cgroup";

// Makes the root's files. `gpus` in the node's order.
Status MakeCgroupRoot(const std::string& node_root, const std::vector<GpuInfo>& gpus);
void RemoveCgroups(const std::string& node_root);

std::unique_ptr<CgroupTree> OpenCgroups(const std::string& node_root, const std::vector<GpuInfo>& gpus,
                                        const std::string& proc_root = "/proc");

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_CGROUP_FILES_H_
