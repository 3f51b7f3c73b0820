#include "share/places.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace mete::share {
namespace {

// Makes `path` with everything above it and checks that it is this user's own.
Status MakeOwn(const std::string& path, const char* variable) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(parent, error);
  if (error) {
    return Lacks("cannot make the directory {}: {}; name another place with {}", parent.string(), error.message(),
                 variable);
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Lacks("cannot make the directory {}: {}; name another place with {}", path, std::strerror(errno), variable);
  }
  struct stat there;
  if (lstat(path.c_str(), &there) != 0) return Lacks("cannot read {}: {}", path, std::strerror(errno));
  if (!S_ISDIR(there.st_mode)) {
    return Lacks("{} is in the way: it is not a directory; remove it or name another place with {}", path, variable);
  }
  if (there.st_uid != geteuid()) {
    return Lacks(
        "{} belongs to uid {}, not to uid {}: somebody else could read or replace what is in it; name another "
        "place with {}",
        path, there.st_uid, geteuid(), variable);
  }
  if ((there.st_mode & 0022) != 0) {
    return Lacks(
        "{} could be written by others (mode {:03o}): what is in it may not be ours; look at it and 'chmod 700 "
        "{}', or name another place with {}",
        path, there.st_mode & 0777, path, variable);
  }
  if ((there.st_mode & 0777) != 0700 && chmod(path.c_str(), 0700) != 0) {
    return Lacks("{} cannot be closed to others: {}; name another place with {}", path, std::strerror(errno), variable);
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return Lacks("{} cannot be written: {}; name another place with {}", path, std::strerror(errno), variable);
  }
  return OkStatus();
}

StatusOr<std::string> Home() {
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return std::string(home);
  if (const passwd* entry = getpwuid(geteuid()); entry != nullptr && entry->pw_dir[0] == '/') {
    return std::string(entry->pw_dir);
  }
  return Lacks("uid {} has no home directory; say with XDG_STATE_HOME where the book is to be", geteuid());
}

// Only absolute paths count in these variables; others are ignored, as their specification says.
std::string FromVariable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

}  // namespace

StatusOr<std::string> NodeName(const std::string& driver_root) {
  struct stat there;
  if (stat(driver_root.c_str(), &there) != 0) {
    return Lacks("the driver root {} cannot be read: {}", driver_root, std::strerror(errno));
  }
  if (!S_ISDIR(there.st_mode)) return Lacks("the driver root {} is not a directory", driver_root);
  return fmt::format("{:x}-{:x}", there.st_dev, there.st_ino);
}

StatusOr<Places> PlacesBelow(const std::string& driver_root, const std::string& runtime, const std::string& state) {
  Places places;
  places.driver_root = driver_root;
  METE_ASSIGN_OR_RETURN(places.node, NodeName(driver_root));
  places.runtime = runtime;
  places.runtime_node = runtime + "/" + places.node;
  places.grants = places.runtime_node + "/grants";
  places.socket = places.runtime_node + "/mete.sock";
  places.broker_lock = places.runtime_node + "/broker.lock";
  places.start_lock = places.runtime_node + "/start.lock";
  places.log = places.runtime_node + "/broker.log";
  places.state = state;
  places.state_node = state + "/" + places.node;
  places.book = places.state_node + "/book.sqlite";
  places.book_lock = places.state_node + "/book.lock";
  const size_t longest = places.grants.size() + sizeof("/0123456789abcdef/broker.sock");
  if (longest > sizeof(sockaddr_un::sun_path)) {
    return Lacks(
        "the runtime directory {} is too long: a socket's path below it would have {} bytes, and the kernel "
        "takes {}; name a shorter place with XDG_RUNTIME_DIR",
        runtime, longest, sizeof(sockaddr_un::sun_path));
  }
  return places;
}

StatusOr<Places> PlacesFor(const std::string& driver_root) {
  std::string runtime = FromVariable("XDG_RUNTIME_DIR");
  runtime = runtime.empty() ? fmt::format("/tmp/mete-{}", geteuid()) : runtime + "/mete";
  std::string state = FromVariable("XDG_STATE_HOME");
  if (state.empty()) {
    METE_ASSIGN_OR_RETURN(const std::string home, Home());
    state = home + "/.local/state";
  }
  return PlacesBelow(driver_root, runtime, state + "/mete");
}

Status MakePlaces(const Places& places) {
  METE_RETURN_IF_ERROR(MakeOwn(places.runtime, "XDG_RUNTIME_DIR"));
  METE_RETURN_IF_ERROR(MakeOwn(places.runtime_node, "XDG_RUNTIME_DIR"));
  METE_RETURN_IF_ERROR(MakeOwn(places.grants, "XDG_RUNTIME_DIR"));
  METE_RETURN_IF_ERROR(MakeOwn(places.state, "XDG_STATE_HOME"));
  return MakeOwn(places.state_node, "XDG_STATE_HOME");
}

}  // namespace mete::share
