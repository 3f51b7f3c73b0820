#include "interceptor/driver_need.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>

#include "interceptor/elf_needs.h"
#include "interceptor/loaded_object.h"

namespace mete::interceptor {
namespace {

struct DriverName {
  const char* name;
  DriverNeed need;
};
constexpr DriverName kDriverNames[] = {{"libcuda.so.1", kNeedsCuda},
                                       {"libcuda.so", kNeedsCuda},
                                       {"libnvidia-ml.so.1", kNeedsMl},
                                       {"libnvidia-ml.so", kNeedsMl}};
constexpr unsigned kEverything = kNeedsCuda | kNeedsMl;
constexpr unsigned kDeepest = 12, kMostFiles = 512;

const char* BaseName(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// With or without a folder.
unsigned NeedByName(const char* file) {
  for (const DriverName& driver : kDriverNames) {
    if (strcmp(BaseName(file), driver.name) == 0) return driver.need;
  }
  return 0;
}

uint64_t HashOf(const char* text) {
  uint64_t h = 14695981039346656037u;
  for (; *text != '\0'; ++text) h = (h ^ static_cast<unsigned char>(*text)) * 1099511628211u;
  return h;
}

struct Path {
  char text[PATH_MAX];
  size_t length = 0;

  bool Add(const char* from, size_t size) {
    if (size >= sizeof text - length) return false;
    memcpy(text + length, from, size);
    length += size;
    text[length] = '\0';
    return true;
  }
  bool Add(const char* from) { return Add(from, strlen(from)); }
};

struct Mapped {
  const void* bytes = nullptr;
  size_t size = 0;

  explicit Mapped(const char* path) {
    // Not asked with fstat, which glibc gave a new version in 2.33; what is no file has no end to seek to.
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    const off_t length = lseek(fd, 0, SEEK_END);
    if (length > 0) {
      void* at = mmap(nullptr, static_cast<size_t>(length), PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) {
        bytes = at;
        size = static_cast<size_t>(length);
      }
    }
    close(fd);
  }
  ~Mapped() {
    if (bytes != nullptr) munmap(const_cast<void*>(bytes), size);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
};

// The file of a loaded object of this name; false if none is loaded.
struct Loaded {
  const char* name;
  Path* path;
};
int SameName(dl_phdr_info* info, size_t, void* wanted) {
  auto* loaded = static_cast<Loaded*>(wanted);
  if (info->dlpi_name == nullptr || info->dlpi_name[0] != '/') return 0;
  if (strcmp(BaseName(info->dlpi_name), loaded->name) != 0 && strcmp(LoadedObject(*info).Soname(), loaded->name) != 0) {
    return 0;
  }
  return loaded->path->Add(info->dlpi_name) ? 1 : 0;
}

class Search {
 public:
  Search(const char* const* folders, size_t count) : folders_(folders), folder_count_(count) {}

  // `name` as it stands in a file at `origin` with this run path.
  void Look(const char* name, const char* run_path, const char* origin, unsigned depth) {
    if (const unsigned own = NeedByName(name)) {
      need_ |= own;
      return;
    }
    const uint64_t hash = HashOf(name);
    for (unsigned i = 0; i < seen_count_; ++i) {
      if (seen_[i] == hash) return;  // looked at, or being looked at
    }
    Path path;
    if (seen_count_ == kMostFiles || depth == kDeepest || !Locate(name, run_path, origin, &path)) {
      need_ |= kNeedsUnknown;
      return;
    }
    seen_[seen_count_++] = hash;
    const Mapped file(path.text);
    ElfNeeds needs;
    if (file.bytes == nullptr || !ReadElfNeeds(file.bytes, file.size, &needs)) {
      need_ |= kNeedsUnknown;
      return;
    }
    need_ |= NeedByName(needs.soname);
    for (size_t i = 0; i < needs.count && (need_ & kEverything) != kEverything; ++i) {
      Look(needs.needed[i], needs.run_path, path.text, depth + 1);
    }
  }
  unsigned Need() const { return need_; }

 private:
  bool Locate(const char* name, const char* run_path, const char* origin, Path* path) const {
    if (strchr(name, '/') != nullptr) return path->Add(name);
    Loaded loaded{name, path};
    if (dl_iterate_phdr(SameName, &loaded) != 0) return true;
    for (const char* at = run_path; *at != '\0';) {
      const size_t length = strcspn(at, ":");
      if (In(at, length, origin, name, path)) return true;
      at += length + (at[length] == ':' ? 1 : 0);
    }
    for (size_t i = 0; i < folder_count_; ++i) {
      if (In(folders_[i], strlen(folders_[i]), "", name, path)) return true;
    }
    return false;
  }

  // Is there such a file in a folder of a run path, whose $ORIGIN is the folder of `origin`?
  static bool In(const char* folder, size_t length, const char* origin, const char* name, Path* path) {
    path->length = 0;
    for (const char* end = folder + length; folder < end;) {
      size_t token = 0;
      for (const char* word : {"$ORIGIN", "${ORIGIN}"}) {
        const size_t size = strlen(word);
        if (static_cast<size_t>(end - folder) >= size && memcmp(folder, word, size) == 0) token = size;
      }
      if (token == 0) {
        if (!path->Add(folder, 1)) return false;
        ++folder;
        continue;
      }
      if (!path->Add(origin, static_cast<size_t>(BaseName(origin) - origin))) return false;
      folder += token;
    }
    return path->length != 0 && path->Add("/") && path->Add(name) && access(path->text, R_OK) == 0;
  }

  unsigned need_ = 0;
  const char* const* folders_;
  size_t folder_count_;
  uint64_t seen_[kMostFiles];
  unsigned seen_count_ = 0;
};

}  // namespace

unsigned NeedOf(const char* file, const char* const* folders, size_t folder_count) {
  const int error = errno;
  Search search(folders, folder_count);
  search.Look(file, "", "", 0);
  errno = error;
  return search.Need();
}

}  // namespace mete::interceptor
