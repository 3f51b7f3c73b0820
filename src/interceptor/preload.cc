// The decisions of libmete-preload.so: what dlsym, dlvsym, dlopen and dlmopen do in a process into which it is
// preloaded, and where the driver functions lead that it exports.
//
// Until the program has a driver in its process nothing here loads, opens or remembers anything but the addresses of
// the C library's own functions.
#include "interceptor/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>
#include <type_traits>

#include "interceptor/driver_need.h"
#include "interceptor/loaded_object.h"

#define METE_NAME(name, index) #name,
constexpr const char* kNames[] = {
#include "preload_names.inc"
};
#undef METE_NAME
constexpr uint32_t kNameCount = sizeof kNames / sizeof kNames[0];

// Where mete_bind remembers what it found, for preload_entry.S; null until then.
extern "C" {
constinit __attribute__((visibility("hidden"))) void* mete_slots[kNameCount] = {};
}

namespace mete::interceptor {
namespace {

// --- the real functions of the C library ------------------------------------------------------------------------

struct Real {
  void* (*dlsym)(void*, const char*);
  void* (*dlvsym)(void*, const char*, const char*);
  void* (*dlopen)(const char*, int);
  void* (*dlmopen)(Lmid_t, const char*, int);
  char* (*dlerror)();
  int (*dlinfo)(void*, int, void*);
  int (*dladdr1)(const void*, Dl_info*, void**, int);
};

constinit std::atomic<bool> real_found{false};
Real real_functions;

// They stand in libc, and before 2.34 in libdl. Not looked up by dlsym, which we stand in front of.
void LookIn(const link_map& map, Real* real) {
  const LoadedObject object(map.l_addr, map.l_ld);
  if (strcmp(object.Soname(), "libc.so.6") != 0 && strcmp(object.Soname(), "libdl.so.2") != 0) return;
  const auto fill = [&](auto& function, const char* name) {
    if (function == nullptr) function = reinterpret_cast<std::decay_t<decltype(function)>>(object.Find(name));
  };
  fill(real->dlsym, "dlsym");
  fill(real->dlvsym, "dlvsym");
  fill(real->dlopen, "dlopen");
  fill(real->dlmopen, "dlmopen");
  fill(real->dlerror, "dlerror");
  fill(real->dlinfo, "dlinfo");
  fill(real->dladdr1, "dladdr1");
}

// Null when the process has no libdl: then nobody can have called us. By the linker's list of what is loaded and not by
// dl_iterate_phdr, in front of which somebody may stand who is just asking us where it is. What is sought was there
// before any code of the program ran, and the list only grows behind it.
const Real* Libc() {
  if (real_found.load(std::memory_order_acquire)) return &real_functions;
  Real found{};
  for (const link_map* map = _r_debug.r_map; map != nullptr; map = map->l_next) LookIn(*map, &found);
  if (found.dlsym == nullptr || found.dlvsym == nullptr || found.dlopen == nullptr || found.dlmopen == nullptr ||
      found.dlerror == nullptr || found.dlinfo == nullptr || found.dladdr1 == nullptr) {
    return nullptr;
  }
  // Two threads that come here at once write the same words.
  real_functions = found;
  real_found.store(true, std::memory_order_release);
  return &real_functions;
}

// --- objects ----------------------------------------------------------------------------------------------------

enum Kind : uint8_t { kCuda, kMl, kKinds };
constexpr const char* kProxy[kKinds] = {"libcuda.so.1", "libnvidia-ml.so.1"};
constexpr const char* kDriver[kKinds] = {"libmete-driver-cuda.so.1", "libmete-driver-ml.so.1"};

const link_map* ObjectOf(const Real& real, const void* address) {
  Dl_info info;
  void* map = nullptr;
  if (real.dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(map);
}

const link_map* Own(const Real& real) { return ObjectOf(real, mete_slots); }

// A path in the folder this library was loaded from: the grant's. False if that is not known by an absolute path.
bool BesideUs(const Real& real, const char* name, char (&path)[PATH_MAX]) {
  const link_map* own = Own(real);
  if (own == nullptr || own->l_name == nullptr || own->l_name[0] != '/') return false;
  const auto folder = static_cast<size_t>(strrchr(own->l_name, '/') + 1 - own->l_name);
  if (folder + strlen(name) >= sizeof path) return false;
  memcpy(path, own->l_name, folder);
  memcpy(path + folder, name, strlen(name) + 1);
  return true;
}

bool IsProxy(const Real& real, const link_map& map) {
  char path[PATH_MAX];
  for (const char* name : kProxy) {
    if (BesideUs(real, name, path) && strcmp(map.l_name, path) == 0) return true;
  }
  return false;
}

// Which driver library this is; kKinds: none, or a proxy.
Kind DriverKind(const Real& real, const link_map& map) {
  const char* soname = LoadedObject(map.l_addr, map.l_ld).Soname();
  for (Kind kind : {kCuda, kMl}) {
    if (strcmp(soname, kProxy[kind]) == 0) return IsProxy(real, map) ? kKinds : kind;
  }
  return kKinds;
}

// Who asks for itself: mete's libraries, and the driver's.
bool AsksForItself(const Real& real, const void* caller) {
  const link_map* map = ObjectOf(real, caller);
  if (map == nullptr) return false;
  return map == Own(real) || IsProxy(real, *map) || DriverKind(real, *map) != kKinds;
}

void Say(const char* what, const char* about) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  char line[512];
  const int length = snprintf(line, sizeof line, "mete: %s%s\n", what, about);
  if (length <= 0) return;
  const auto size = static_cast<size_t>(length) < sizeof line ? static_cast<size_t>(length) : sizeof line - 1;
  if (write(STDERR_FILENO, line, size) < 0) return;  // nobody listens
}

// --- the proxies ------------------------------------------------------------------------------------------------

struct Behind {
  void* proxy = nullptr;             // null: cannot be loaded
  const link_map* driver = nullptr;  // the one that the proxy stands in front of
};
constinit std::atomic<void*> base_proxy[kKinds]{};
constinit std::atomic<const link_map*> base_driver[kKinds]{};

// The proxy in this name space, loaded if need be. The caller holds no lock of ours, for there is none: a thread in the
// dynamic linker may come here by way of a constructor.
Behind ProxyIn(const Real& real, Lmid_t name_space, Kind kind) {
  if (name_space == LM_ID_BASE && base_proxy[kind].load(std::memory_order_acquire) != nullptr) {
    return {base_proxy[kind].load(std::memory_order_acquire), base_driver[kind].load(std::memory_order_acquire)};
  }
  char path[PATH_MAX];
  if (!BesideUs(real, kProxy[kind], path)) {
    Say("libmete-preload.so was not preloaded by an absolute path: no GPU here", "");
    return {};
  }
  Behind behind;
  behind.proxy = name_space == LM_ID_BASE ? real.dlopen(path, RTLD_NOW | RTLD_LOCAL)
                                          : real.dlmopen(name_space, path, RTLD_NOW | RTLD_LOCAL);
  if (behind.proxy == nullptr) {
    const char* why = real.dlerror();
    Say("the share's driver cannot be loaded, so there is no GPU here: ", why != nullptr ? why : path);
    return {};
  }
  void* driver = nullptr;
  link_map* map = nullptr;
  if (BesideUs(real, kDriver[kind], path)) driver = real.dlmopen(name_space, path, RTLD_LAZY | RTLD_NOLOAD);
  if (driver != nullptr && real.dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0) behind.driver = map;
  if (name_space == LM_ID_BASE) {
    base_driver[kind].store(behind.driver, std::memory_order_release);
    base_proxy[kind].store(behind.proxy, std::memory_order_release);
  }
  return behind;
}

// What a program gets instead of a driver that is not the share's, or whose limits are not in force.
int RefuseCuInit() { return 999; }    // CUDA_ERROR_UNKNOWN
int RefuseCu() { return 3; }          // CUDA_ERROR_NOT_INITIALIZED
int RefuseNvmlInit() { return 999; }  // NVML_ERROR_UNKNOWN
int RefuseNvml() { return 1; }        // NVML_ERROR_UNINITIALIZED

void* Refusal(const char* name) {
  if (strcmp(name, "cuInit") == 0) return reinterpret_cast<void*>(&RefuseCuInit);
  if (strncmp(name, "nvmlInit", 8) == 0) return reinterpret_cast<void*>(&RefuseNvmlInit);
  return reinterpret_cast<void*>(name[0] == 'c' ? &RefuseCu : &RefuseNvml);
}

bool IsWrapped(const char* name) {
  if (strncmp(name, "cu", 2) != 0 && strncmp(name, "nvml", 4) != 0) return false;
  for (const char* own : kNames) {
    if (strcmp(own, name) == 0) return true;
  }
  return false;
}

constexpr char kOtherDriver[] = "this program has a driver that is not its share's, so it gets no GPU: ";

// The function that the program gets for the address `found` that the dynamic linker has for `name`.
void* Exchange(const Real& real, void* found, const char* name) {
  const link_map* map = ObjectOf(real, found);
  if (map == nullptr) return found;
  const Kind kind = DriverKind(real, *map);
  if (kind == kKinds) return found;
  Lmid_t name_space = LM_ID_BASE;
  if (real.dlinfo(const_cast<link_map*>(map), RTLD_DI_LMID, &name_space) != 0) return Refusal(name);
  const Behind behind = ProxyIn(real, name_space, kind);
  if (behind.proxy == nullptr || behind.driver != map) {
    if (!IsWrapped(name)) return found;
    if (behind.proxy != nullptr) Say(kOtherDriver, map->l_name);
    return Refusal(name);
  }
  // The proxy has its wrappers, and behind them the same driver.
  void* wrapper = real.dlsym(behind.proxy, name);
  return wrapper != nullptr ? wrapper : found;
}

// --- dlsym and dlvsym -------------------------------------------------------------------------------------------

// The next object after the caller's that defines the name, but for ourselves.
struct Next {
  const void* caller;
  const char* name;
  bool after;
  void* found;
};
int LookAfter(dl_phdr_info* info, size_t, void* result) {
  auto* next = static_cast<Next*>(result);
  if (!next->after) {
    next->after = Holds(*info, next->caller);
    return 0;
  }
  if (Holds(*info, mete_slots)) return 0;
  next->found = LoadedObject(*info).Find(next->name);
  return next->found != nullptr ? 1 : 0;
}

// Without us in front: what the dynamic linker would have found for a name that we export ourselves.
void* FoundWithoutUs(const Real& real, void* handle, const char* name, const void* caller) {
  if (handle == RTLD_NEXT) {
    Next next{caller, name, false, nullptr};
    dl_iterate_phdr(LookAfter, &next);
    if (next.found != nullptr) return next.found;
    return real.dlsym(RTLD_NEXT, name);  // says that there is none
  }
  void* found = real.dlsym(RTLD_DEFAULT, name);
  if (found != nullptr && ObjectOf(real, found) != Own(real)) return found;  // the program's own
  found = real.dlsym(RTLD_NEXT, name);  // as seen from here: the global scope behind us
  const link_map* map = ObjectOf(real, caller);
  if (found == nullptr && map != nullptr) found = real.dlsym(const_cast<link_map*>(map), name);
  if (found != nullptr && ObjectOf(real, found) != Own(real)) return found;
  return real.dlsym(RTLD_NEXT, name);  // once more, so that dlerror says that there is none
}

struct OwnFunction {
  const char* name;
  void* own;
  void* real;
};

// For those who ask for the C library's functions past us. Null: not one of these.
void* OwnInsteadOf(const Real& real, const char* name, const void* found) {
  const OwnFunction functions[] = {
      {"dlsym", reinterpret_cast<void*>(&mete_dlsym), reinterpret_cast<void*>(real.dlsym)},
      {"dlvsym", reinterpret_cast<void*>(&mete_dlvsym), reinterpret_cast<void*>(real.dlvsym)},
      {"dlopen", reinterpret_cast<void*>(&mete_dlopen), reinterpret_cast<void*>(real.dlopen)},
      {"dlmopen", reinterpret_cast<void*>(&mete_dlmopen), reinterpret_cast<void*>(real.dlmopen)}};
  for (const OwnFunction& function : functions) {
    if (strcmp(function.name, name) == 0 && (found == nullptr || found == function.real)) return function.own;
  }
  return nullptr;
}

void* DecideSymbol(MeteArguments* arguments, const char* version, void* jump, const Real& real, const void* caller) {
  auto* handle = reinterpret_cast<void*>(arguments->value[0]);
  const auto* name = reinterpret_cast<const char*>(arguments->value[1]);
  if (name == nullptr) return jump;
  const bool driver_like = strncmp(name, "cu", 2) == 0 || strncmp(name, "nvml", 4) == 0;
  const bool loader_like = name[0] == 'd' && name[1] == 'l';
  if (!driver_like && !loader_like) return jump;
  if (AsksForItself(real, caller)) return jump;
  const int error = errno;
  void* answer = nullptr;
  if (loader_like) {
    if (handle == RTLD_DEFAULT || OwnInsteadOf(real, name, nullptr) == nullptr) return jump;
    // Whether the version is known is the dynamic linker's word; who asks it does not matter for these names.
    void* found = version != nullptr ? real.dlvsym(handle, name, version) : real.dlsym(handle, name);
    void* own = found == nullptr ? nullptr : OwnInsteadOf(real, name, found);
    answer = own != nullptr ? own : found;
  } else if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
    if (!IsWrapped(name)) return jump;
    answer = FoundWithoutUs(real, handle, name, caller);
  } else {
    answer = version != nullptr ? real.dlvsym(handle, name, version) : real.dlsym(handle, name);
    if (answer != nullptr && ObjectOf(real, answer) == Own(real)) {
      answer = FoundWithoutUs(real, RTLD_DEFAULT, name, caller);  // the handle of the program itself
    }
  }
  if (answer != nullptr && driver_like) {
    void* exchanged = Exchange(real, answer, name);
    if (exchanged != answer) real.dlerror();  // what went wrong on the way is not the program's
    answer = exchanged;
  }
  errno = error;
  arguments->value[0] = reinterpret_cast<uintptr_t>(answer);
  return nullptr;
}

int MissingCu() { return 801; }   // CUDA_ERROR_NOT_SUPPORTED
int MissingNvml() { return 13; }  // NVML_ERROR_FUNCTION_NOT_FOUND

// What the program, linked to a driver, gets for a name that we export. Null: nothing.
void* BehindStub(const Real& real, const char* name) {
  void* linked = real.dlsym(RTLD_NEXT, name);  // without us in front
  real.dlerror();
  const link_map* map = linked == nullptr ? nullptr : ObjectOf(real, linked);
  // Somebody's own library of these names, which finds the driver as everybody does.
  if (map != nullptr && DriverKind(real, *map) == kKinds && !IsProxy(real, *map)) return linked;
  const Behind behind = ProxyIn(real, LM_ID_BASE, name[0] == 'c' ? kCuda : kMl);
  if (behind.proxy == nullptr) return nullptr;
  // The program's other driver functions are those of the driver it is linked to: it must be the same.
  if (map != nullptr && !IsProxy(real, *map) && map != behind.driver) {
    Say(kOtherDriver, map->l_name);
    return nullptr;
  }
  void* function = real.dlsym(behind.proxy, name);
  if (function == nullptr) function = reinterpret_cast<void*>(name[0] == 'c' ? &MissingCu : &MissingNvml);
  return function;
}

// --- dlopen and dlmopen -----------------------------------------------------------------------------------------

constexpr size_t kMostFolders = 64;

// What opening this file would bring in, looked for where the caller's libraries are.
unsigned NeedFor(const Real& real, const char* file, const void* caller) {
  const link_map* map = ObjectOf(real, caller);
  Dl_serinfo size{};
  const char* folders[kMostFolders];
  size_t count = 0;
  alignas(Dl_serinfo) char room[16384];
  auto* list = reinterpret_cast<Dl_serinfo*>(room);
  if (map != nullptr && real.dlinfo(const_cast<link_map*>(map), RTLD_DI_SERINFOSIZE, &size) == 0 &&
      size.dls_size <= sizeof room) {
    *list = size;
    if (real.dlinfo(const_cast<link_map*>(map), RTLD_DI_SERINFO, list) == 0) {
      const Dl_serpath* path = list->dls_serpath;
      for (; count < list->dls_cnt && count < kMostFolders; ++count, ++path) folders[count] = path->dls_name;
    }
  }
  return NeedOf(file, folders, count);
}

}  // namespace
}  // namespace mete::interceptor

namespace own = mete::interceptor;

extern "C" {

void* mete_decide_dlsym(MeteArguments* arguments, const void* caller) {
  const own::Real* real = own::Libc();
  if (real == nullptr) return arguments->value[0] = 0, nullptr;
  return own::DecideSymbol(arguments, nullptr, reinterpret_cast<void*>(real->dlsym), *real, caller);
}

void* mete_decide_dlvsym(MeteArguments* arguments, const void* caller) {
  const own::Real* real = own::Libc();
  if (real == nullptr) return arguments->value[0] = 0, nullptr;
  const auto* version = reinterpret_cast<const char*>(arguments->value[2]);
  auto* jump = reinterpret_cast<void*>(real->dlvsym);
  return version == nullptr ? jump : own::DecideSymbol(arguments, version, jump, *real, caller);
}

void* mete_decide_dlopen(MeteArguments* arguments, const void* caller) {
  const own::Real* real = own::Libc();
  if (real == nullptr) return arguments->value[0] = 0, nullptr;
  const auto* file = reinterpret_cast<const char*>(arguments->value[0]);
  const auto mode = static_cast<int>(arguments->value[1]);
  // Such an object would look its driver functions up in the driver before it looks here.
  if (file != nullptr && (mode & RTLD_DEEPBIND) != 0 && own::NeedFor(*real, file, caller) != 0) {
    arguments->value[1] = static_cast<uintptr_t>(mode & ~RTLD_DEEPBIND);
  }
  return reinterpret_cast<void*>(real->dlopen);
}

void* mete_decide_dlmopen(MeteArguments* arguments, const void* caller) {
  const own::Real* real = own::Libc();
  if (real == nullptr) return arguments->value[0] = 0, nullptr;
  const auto name_space = static_cast<Lmid_t>(arguments->value[0]);
  const auto* file = reinterpret_cast<const char*>(arguments->value[1]);
  const auto mode = static_cast<int>(arguments->value[2]);
  auto* jump = reinterpret_cast<void*>(real->dlmopen);
  if (file == nullptr || (name_space == LM_ID_BASE && (mode & RTLD_DEEPBIND) == 0)) return jump;
  if (own::AsksForItself(*real, caller)) return jump;
  const unsigned need = own::NeedFor(*real, file, caller);
  if (name_space == LM_ID_BASE) {
    if (need != 0) arguments->value[2] = static_cast<uintptr_t>(mode & ~RTLD_DEEPBIND);
    return jump;
  }
  // We are not in that name space. The proxies are put there first: who asks for the driver by its name gets them.
  Lmid_t into = name_space;
  for (own::Kind kind : {own::kCuda, own::kMl}) {
    if ((need & (kind == own::kCuda ? own::kNeedsCuda : own::kNeedsMl)) == 0) continue;
    const own::Behind behind = own::ProxyIn(*real, into, kind);
    if (behind.proxy == nullptr || (into == LM_ID_NEWLM && real->dlinfo(behind.proxy, RTLD_DI_LMID, &into) != 0)) {
      return arguments->value[0] = 0, nullptr;
    }
  }
  arguments->value[0] = static_cast<uintptr_t>(into);
  return jump;
}

void* mete_bind(uint32_t index) {
  const char* name = kNames[index];
  const own::Real* real = own::Libc();
  if (real == nullptr) return own::Refusal(name);
  void* function = own::BehindStub(*real, name);
  if (function == nullptr) return own::Refusal(name);
  __atomic_store_n(&mete_slots[index], function, __ATOMIC_RELEASE);
  return function;
}

}  // extern "C"
