// The directory of a grant: where a tenant's loader and PATH find the driver of its node.
//
//   GRANTS/ID/ libcuda.so.1     -> the node's     libcuda.so      -> libcuda.so.1
//              libnvidia-ml.so.1 -> the node's    libnvidia-ml.so -> libnvidia-ml.so.1
//              bin/nvidia-smi   -> the node's tool, where there is one
//
// Links to single files, and never a folder of the driver root, which may hold a whole system: its other libraries and
// programs must not come before the user's own. Interception puts its libraries in their place (intercept.h). Each call
// is idempotent. Errors: Lacks. No state; any thread, not two at once for one directory.
#ifndef METE_MECHANISM_GRANT_DIRECTORY_H_
#define METE_MECHANISM_GRANT_DIRECTORY_H_

#include <string>
#include <string_view>
#include <vector>

#include "mechanism/mechanism.h"

namespace mete::mechanism {

std::string GrantDirectory(const std::string& grants_dir, const plan::Grant& grant);

// The real file of a driver library below the node's root, symbolic links resolved.
StatusOr<std::string> DriverLibrary(const std::string& root, const char* name);

// Lacks for a directory whose name the dynamic linker would not take; `preload`: for LD_PRELOAD too.
Status CheckForLoader(const std::string& directory, bool preload);
Status MakeDirectory(const std::string& path);
Status MakeLink(const std::string& to, const std::string& path);
Status LinkTool(const std::string& driver_root, const std::string& directory);
// "cannot WHAT OBJECT", with the way on.
Status Cannot(std::string_view what, const std::string& object, int error);

// A directory with the driver as it is.
Status LinkDriver(const std::string& driver_root, const std::string& directory);
Status RemoveGrantDirectory(const std::string& directory, const plan::Grant& grant);

// What makes a program find that directory, and see these GPUs or MIG devices only.
Edits DriverEdits(const std::string& directory, const std::vector<std::string>& visible);
// The same for a tenant without the interceptor, which nothing but its environment and its parents tell from a
// stranger.
Edits BareEdits(const plan::Grant& grant, const std::string& directory, const std::vector<std::string>& visible);
// The id of the grant that a process was started with by BareEdits; empty: none, or it cannot be read.
std::string ShareNamedBy(uint32_t pid, const std::string& proc_root = "/proc");

// Does each process see them only? Read from its environment.
void VerifyVisible(const std::vector<Tenant>& tenants, const std::vector<std::string>& visible,
                   const std::string& proc_root, Evidence* evidence);

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_GRANT_DIRECTORY_H_
