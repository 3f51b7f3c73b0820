#include "base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mete {
namespace {

Status Failed(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) return NoSuch("{}: {}", path, std::strerror(error));
  if (error == EISDIR) return Usage("{}: is a folder, not a file", path);
  return Lacks("{}: cannot be read: {}", path, std::strerror(error));
}

}  // namespace

StatusOr<std::string> ReadFile(const std::string& path, size_t most) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);  // a fifo must not block us
  if (fd < 0) return Failed(path, errno);
  std::string content;
  char buffer[16384];
  Status result = OkStatus();
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) result = Failed(path, errno);
    if (count <= 0) break;
    content.append(buffer, static_cast<size_t>(count));
    if (content.size() > most) {
      result = Usage("{}: longer than {} bytes", path, most);
      break;
    }
  }
  close(fd);
  if (!result.ok()) return result;
  return content;
}

}  // namespace mete
