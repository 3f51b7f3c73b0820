// The mechanism `time-slicing`: what the driver does by itself when several contexts use a GPU. Its tenants take turns
// on the whole GPU; nothing limits them, so the plan gives it only where nobody was promised anything.
//
// What can be set is the class of time slices (`--time-slice`), one for the whole GPU, through the node's own
// `nvidia-smi compute-policy`: there is no library call. It counts for contexts made afterwards, and is gone after a
// reboot. Shares of one GPU that ask for a class ask for the same one (plan/choice_room.cc); the last of them sets back
// what the first one found. On a MIG device the class has no effect, so there it is refused (mechanism/probe.cc).
//
// Errors: Lacks (driver, tool, rights). See mechanism.h for ownership and threads.
#ifndef METE_MECHANISM_TIME_SLICING_TIME_SLICING_H_
#define METE_MECHANISM_TIME_SLICING_TIME_SLICING_H_

#include <string>
#include <string_view>
#include <vector>

#include "mechanism/mechanism.h"
#include "nvml/library.h"

namespace mete::mechanism {

class TimeSlicing final : public Mechanism {
 public:
  struct Options {
    std::string driver_root;
    std::string grants_dir;
    std::string proc_root = "/proc";
  };
  // The library must outlive it.
  TimeSlicing(const nvml::Library& library, Options options) : library_(library), options_(std::move(options)) {}

  std::string_view name() const override { return "time-slicing"; }
  Support Probe(const plan::GpuOccupancy& gpu) const override;
  StatusOr<Edits> Prepare(const plan::Grant& grant, Journal& journal) const override;
  StatusOr<Evidence> Verify(const plan::Grant& grant, const std::vector<Tenant>& tenants,
                            const Journal& journal) const override;
  Status Release(const plan::Grant& grant, Journal& journal) const override;

 private:
  // As the driver has it now, through the tool in `directory`.
  StatusOr<plan::TimeSlice> Read(const std::string& directory, const nvml::Device& gpu) const;
  Status Set(const std::string& directory, const nvml::Device& gpu, plan::TimeSlice slice) const;
  Status SetClass(const plan::Grant& grant, const std::string& directory, const std::string& gpu,
                  Journal& journal) const;
  Status SetClassBack(const plan::Grant& grant, const std::string& directory, const std::string& gpu,
                      Journal& journal) const;

  const nvml::Library& library_;
  Options options_;
};

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_TIME_SLICING_TIME_SLICING_H_
