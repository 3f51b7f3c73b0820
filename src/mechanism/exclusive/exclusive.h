// The mechanism `exclusive`: whole GPUs for one tenant. The book gives them to nobody else; the tenant sees no other
// GPU; a process of nobody's share on them is seen by the audit and ends the promises, visibly.
//
// A tenant that says it is one process (`--processes 1`) gets the compute mode EXCLUSIVE_PROCESS besides, where NVML
// permits it: then the driver itself turns every other process away. For any number of processes the mode stays as it
// was found, because it would turn the tenant's own away too. Set back on release as it was found, unless somebody
// else has changed it since.
//
// Errors: Lacks (driver), and what NVML says. See mechanism.h for ownership and threads.
#ifndef METE_MECHANISM_EXCLUSIVE_EXCLUSIVE_H_
#define METE_MECHANISM_EXCLUSIVE_EXCLUSIVE_H_

#include <string>
#include <string_view>
#include <vector>

#include "mechanism/mechanism.h"
#include "nvml/library.h"

namespace mete::mechanism {

class Exclusive final : public Mechanism {
 public:
  struct Options {
    std::string driver_root;
    std::string grants_dir;
    std::string proc_root = "/proc";
  };
  // The library must outlive it.
  Exclusive(const nvml::Library& library, Options options) : library_(library), options_(std::move(options)) {}

  std::string_view name() const override { return "exclusive"; }
  Support Probe(const plan::GpuOccupancy& gpu) const override;
  StatusOr<Edits> Prepare(const plan::Grant& grant, Journal& journal) const override;
  StatusOr<Evidence> Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                            const Journal& journal) const override;
  Status Release(const plan::Grant& grant, Journal& journal) const override;

 private:
  const nvml::Library& library_;
  Options options_;
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_EXCLUSIVE_EXCLUSIVE_H_
