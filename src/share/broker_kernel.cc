// Memory limits that the kernel holds besides the interceptor, where the node offers them: a cgroup a share. What fails
// here ends no share: it falls back to the interceptor alone, and says so.
#include "base/log.h"
#include "share/broker.h"

namespace mete::share {

void Broker::OpenKernelLimits() {
  if (options_.cgroups.empty()) {
    no_kernel_limits_ = "this broker was told of no cgroup tree";
    return;
  }
  kernel_facts_ = mechanism::LookForKernelLimits(*nvml_, options_.cgroups);
  no_kernel_limits_ = mechanism::WhyNoKernelLimits(kernel_facts_);
  if (!no_kernel_limits_.empty()) return;
  kernel_ = std::make_unique<mechanism::KernelLimits>(*nvml_, options_.cgroups, options_.places.node);
  kernel_->LeaveOwnGroups();  // started by a process of a share, after a broker was killed
}

void Broker::MakeKernelGroup(Share& share) {
  share.kernel.reset();
  share.no_kernel = no_kernel_limits_;
  if (!kernel_) return;
  if (const Status made = kernel_->Make(share.row.grant); !made.ok()) return DropKernelGroup(share, made);
  share.kernel.emplace();
  options_.reached("put in force: cgroup made");
}

void Broker::DropKernelGroup(Share& share, const Status& why) {
  share.kernel.reset();
  share.no_kernel = Message(why);
  log::Warn("share={} the library alone limits its memory: {}", share.row.grant.share, share.no_kernel);
  Note(share.row.grant.share, {}, "kernel-limit", "the library alone limits memory: " + share.no_kernel);
  RemoveKernelGroup(share.row.grant);
}

void Broker::EnterKernelGroup(Share& share, uint32_t pid) {
  if (!share.kernel) return;
  if (const Status put = kernel_->Put(share.row.grant, pid); !put.ok()) DropKernelGroup(share, put);
}

void Broker::LimitInKernel(Share& share, size_t position) {
  if (!share.kernel) return;
  const plan::GpuGrant& part = share.row.grant.gpus[position];
  const auto known = share.kernel->find(part.uuid);
  if (known != share.kernel->end() && known->second == part.allotment.quota.count) return;
  if (const Status set = kernel_->Limit(share.row.grant, part.uuid, part.allotment.quota); !set.ok()) {
    return DropKernelGroup(share, set);
  }
  (*share.kernel)[part.uuid] = part.allotment.quota.count;
}

// A group with a process in it cannot be removed: `mete run` leaves a moment after its share has ended.
void Broker::RemoveKernelGroup(const plan::Grant& grant) {
  if (!kernel_ || kernel_->Remove(grant).ok()) return;
  plan::Grant left;
  left.id = grant.id;
  left.share = grant.share;
  kernel_left_.push_back(std::move(left));
}

void Broker::RemoveKernelLeftovers() {
  std::erase_if(kernel_left_, [this](const plan::Grant& grant) { return kernel_->Remove(grant).ok(); });
}

void Broker::RemoveKernelOrphans() {
  if (!kernel_) return;
  std::set<std::string> known;
  for (const auto& entry : shares_) known.insert(kernel_->Folder(entry.second->row.grant));
  kernel_->RemoveOthers(known);
}

std::vector<mechanism::Evidence::Item> Broker::KernelEvidence(const Share& share) const {
  std::vector<mechanism::Evidence::Item> items;
  if (!share.kernel) return items;
  for (const plan::GpuGrant& part : share.row.grant.gpus) {
    mechanism::Evidence::Item item;
    item.what = fmt::format("the kernel holds the memory limit on GPU {}", gpus_.at(part.uuid).reading.index);
    const StatusOr<nvml::CgroupMemory> seen = kernel_->Read(share.row.grant, part.uuid);
    if (!seen.ok()) {
      item.because = Message(seen.status());
    } else {
      item.holds = seen->hard == part.allotment.quota;
      item.because = fmt::format("cgroup {}: {} of {} in use", kernel_->Folder(share.row.grant), ToString(seen->used),
                                 seen->hard == nvml::kNoMemoryLimit ? "no limit" : ToString(seen->hard));
    }
    items.push_back(std::move(item));
  }
  return items;
}

Json Broker::KernelJson(const Share& share) const {
  if (!share.kernel) return {{"in_use", false}, {"because", share.no_kernel}};
  return {{"in_use", true}, {"cgroup", kernel_->Folder(share.row.grant)}};
}

}  // namespace mete::share
