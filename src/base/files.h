// Small files read whole. Any thread.
#ifndef METE_BASE_FILES_H_
#define METE_BASE_FILES_H_

#include <cstddef>
#include <string>

#include "base/status.h"

namespace mete {

// The content of a file of at most `most` bytes (also of /proc, where sizes are not known beforehand). NoSuch if there
// is none, Lacks if it cannot be read, Usage if it is longer or not a file.
StatusOr<std::string> ReadFile(const std::string& path, size_t most = size_t{1} << 20);

}  // namespace mete

#endif  // METE_BASE_FILES_H_
