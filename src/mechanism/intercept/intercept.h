// The mechanism `intercept`: a proxy libcuda.so.1 and libnvidia-ml.so.1 in front of the node's own, found by the
// tenant's loader in the grant's directory. The directory is the share's identity: the proxy knows its share by the
// place it was loaded from, so no variable and no inherited descriptor is needed.
//
//   GRANTS/ID/ libcuda.so.1                immutable copy of the proxy        libcuda.so      -> libcuda.so.1
//              libnvidia-ml.so.1           immutable copy of the NVML proxy   libnvidia-ml.so -> libnvidia-ml.so.1
//              libmete-preload.so         immutable copy of what is preloaded where the loader's path is not ours
//              libmete-driver-cuda.so.1 -> the node's libcuda.so.1            (found by the proxy's RUNPATH $ORIGIN)
//              libmete-driver-ml.so.1   -> the node's libnvidia-ml.so.1
//              bin/nvidia-smi           -> the node's tool, where there is one
//              broker.sock                 made by the broker
//
// Copies, not links, so that an upgrade of mete never changes a library under a running tenant. Needs no root.
#ifndef METE_MECHANISM_INTERCEPT_INTERCEPT_H_
#define METE_MECHANISM_INTERCEPT_INTERCEPT_H_

#include <string>
#include <string_view>
#include <vector>

#include "mechanism/mechanism.h"

namespace mete::mechanism {

// "<bindir>/../lib/mete/interceptor" of the running program.
StatusOr<std::string> InterceptorBesideProgram();

class Intercept final : public Mechanism {
 public:
  struct Options {
    std::string driver_root;      // node root with the real libraries
    std::string interceptor_dir;  // holds the proxies libcuda.so.1 and libnvidia-ml.so.1, and libmete-preload.so
    std::string grants_dir;       // exists; one directory per grant is made in it
    std::string proc_root = "/proc";
  };
  explicit Intercept(Options options) : options_(std::move(options)) {}

  std::string_view name() const override { return "intercept"; }
  Support Probe(const plan::GpuOccupancy& gpu) const override;
  StatusOr<Edits> Prepare(const plan::Grant& grant, Journal& journal) const override;
  StatusOr<Evidence> Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                            const Journal& journal) const override;
  Status Release(const plan::Grant& grant, Journal& journal) const override;

  // What Prepare returns, without making anything.
  Edits EditsOf(const plan::Grant& grant) const;
  std::string Directory(const plan::Grant& grant) const;

 private:
  Options options_;
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_INTERCEPT_INTERCEPT_H_
