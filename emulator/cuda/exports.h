// What the generated skin of the library (exports.cc, errors.cc) and the code behind it know of each other.
// Every exported name is a generated forwarder into namespace api, so no call inside the library goes through an
// exported name that an interposer could take. Any thread; nothing here allocates.
#ifndef METE_EMULATOR_CUDA_EXPORTS_H_
#define METE_EMULATOR_CUDA_EXPORTS_H_

#ifndef METE_CUDA_NO_ALIASES
#define METE_CUDA_NO_ALIASES
#endif
#include "mete/cuda.h"

namespace mete::emulator::cuda {

enum class StreamKind : unsigned char { kNoStream, kLegacyStream, kPerThreadStream };

// One exported symbol as the look-up sees it; kSymbols is sorted by name, then version.
struct Symbol {
  const char* name;    // what cuGetProcAddress takes
  const char* symbol;  // what dlsym takes
  int version;         // first CUDA version with this ABI
  StreamKind stream;
  void* address;
};
extern const Symbol kSymbols[];
extern const int kSymbolCount;

struct ErrorText {
  int value;
  const char* name;
  const char* text;
};
extern const ErrorText kErrors[];  // sorted by value
extern const int kErrorCount;

struct ConstantAttribute {
  int attribute, value;
};
extern const ConstantAttribute kConstantAttributes[];  // sorted by attribute; not those that the board decides
extern const int kConstantAttributeCount;

// The answer of every function that the emulated driver does not offer: 801, counted at the node.
CUresult Unsupported(const char* symbol);

// While alive, the null stream of this thread means its per-thread default stream.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream() : before_(active_) { active_ = true; }
  ~PerThreadDefaultStream() { active_ = before_; }
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;
  static bool Active() { return active_; }

 private:
  static inline thread_local bool active_ = false;
  bool before_;
};

}  // namespace mete::emulator::cuda

#endif  // METE_EMULATOR_CUDA_EXPORTS_H_
