// The broker: the one process of a node and user that owns the book, arbitrates windows, audits, and holds the pidfds
// of tenants. Commands speak to it over mete.sock (protocol.h), tenants over the broker.sock of their grant's directory
// (ledger/messages.h).
//
//   METE_ASSIGN_OR_RETURN(std::unique_ptr<Broker> broker, Broker::Start(std::move(options)));
//   return broker->Run();   // until it has had no share and no caller for options.idle
//
// Start heals: it compares the book with what is there, completes what a killed broker began, ends shares whose last
// process has gone, and opens sockets again at the same paths, where tenants find it.
//
// Ownership: owns everything it makes; shares outlive it. Thread rule: one thread, but for Stop.
// Errors: Lacks (driver, disk, rights), Refused (another broker has this node).
#ifndef METE_SHARE_BROKER_H_
#define METE_SHARE_BROKER_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "ledger/messages.h"
#include "mechanism/gpu_view.h"
#include "mechanism/grant_directory.h"
#include "mechanism/intercept/intercept.h"
#include "mechanism/intercept/kernel_limits.h"
#include "mechanism/mig/mig.h"
#include "nvml/library.h"
#include "plan/mig/parted.h"
#include "plan/values.h"
#include "share/audit.h"
#include "share/book.h"
#include "share/loop.h"
#include "share/mig_demand.h"
#include "share/overhead.h"
#include "share/places.h"
#include "share/protocol.h"
#include "share/tenancy.h"
#include "share/windows.h"

namespace mete::share {

class Broker {
 public:
  struct Options {
    Places places;
    std::string interceptor_dir;
    std::string cgroups;   // SYS/fs/cgroup of the node; empty: none, and the kernel is not asked
    std::string sys_root;  // SYS of the node; empty: nothing there is looked at
    std::function<StatusOr<std::unique_ptr<nvml::Library>>()> open_nvml;
    std::chrono::milliseconds idle{5000};
    std::chrono::milliseconds audit_period{1000};
    std::chrono::milliseconds bypass_grace{3000};  // how long a share may go past its quota before something is done
    // Told the name of each point between an intent and its effect; tests die there.
    std::function<void(const char* point)> reached = [](const char*) {};
  };
  static StatusOr<std::unique_ptr<Broker>> Start(Options options);
  ~Broker();

  Status Run();
  void Stop();  // Run returns soon; shares stay. Any thread, also a signal handler.

 private:
  struct RunHolder {
    ProcessId process;
    Fd pidfd;
  };
  struct Sample {
    uint64_t at_ns, used_ns;
  };
  struct SlotWatch {
    Overhead overhead;
    uint64_t charged = 0;   // just before the driver was asked
    uint64_t deferred = 0;  // when the round began
  };
  struct Watch {  // of one GPU of a share
    std::deque<Sample> samples;
    std::map<uint32_t, SlotWatch> slots;
    uint64_t denials = 0;
    bool over_quota = false;
    uint64_t bypassed_since_ns = 0;  // 0: is not
    bool bypass_answered = false;
  };
  struct Leaver {  // a slot whose process has died, and whose memory others may hold
    uint32_t slot = 0;
    uint64_t round = 0;  // the audit after which it is cleared
  };
  struct Share {
    ShareRow row;
    ledger::ShareKey key = 0;
    const mechanism::Mechanism* mechanism = nullptr;
    mechanism::Edits edits;
    std::unique_ptr<Tenancy> tenancy;  // of a share without the interceptor: pages that nobody maps
    Fd listener;
    std::map<int, Fd> connections;
    std::vector<RunHolder> run_holders;
    std::optional<std::map<std::string, uint64_t>> kernel;  // hard limits it was given, by GPU; none: not by the kernel
    std::string no_kernel;                                  // why
    std::vector<Watch> watches;                             // in the order of row.grant.gpus
    std::vector<Leaver> leavers;
    std::vector<ProcessId> frozen;          // stopped for going past their quota
    std::map<uint32_t, ProcessId> members;  // seen on its GPUs, of a share without the interceptor; by pid
    std::string invalid;                    // which evidence failed when it was last looked at; empty: none
    uint64_t verified_ns = 0;

    // By the library in its processes, which take slots; else by the GPU it has, and its processes are found.
    bool intercepted() const { return row.grant.mechanism == "intercept"; }
  };
  // The book, as mechanisms write into it.
  class BookJournal;
  struct Gpu {
    GpuReading reading;
    mechanism::GpuFacts facts;  // of a GPU; as when somebody last asked for a share
    std::unique_ptr<Windows> windows;
    std::map<uint32_t, plan::Foreigner> foreigners;  // by pid
  };
  struct Caller {
    Fd fd;
    Unframer in{kMostRequestBytes};
    std::string out;
  };

  explicit Broker(Options options);

  // broker.cc: life
  Status TakeLocks();
  Status Heal();
  Status HealShare(const ShareRow& row, const std::vector<SlotRow>& slots, const std::vector<HolderRow>& holders);
  Status RemoveOrphans();
  Status Listen();
  bool TryToLeave();
  bool NodeGone();

  // broker_choice.cc: which mechanism, on which GPU
  void MakeMechanisms();
  const mechanism::Mechanism* MechanismOf(const plan::Grant& grant) const;
  std::string Directory(const plan::Grant& grant) const;
  plan::GpuOccupancy OccupancyOf(const std::string& uuid) const;
  plan::GpuView ViewOfGpu(const Gpu& gpu) const;
  std::vector<plan::GpuView> Views() const;
  StatusOr<Json> Plan(const Command& command);

  // broker_mig.cc: instances and who has them
  const gpu::MigBoard* MigBoardOf(const Gpu& gpu) const;
  std::string TenantOf(const Gpu& gpu, const nvml::GpuInstance& instance, const std::optional<plan::Instance>& place,
                       bool* movable) const;
  void AddInstances(const Gpu& gpu, plan::GpuView* view) const;
  std::vector<plan::GpuView> MigDevicesOf(const Gpu& gpu, const plan::GpuView& parent) const;
  const nvml::GpuInstance* InstanceOf(const plan::GpuGrant& part) const;
  bool IsOn(const plan::GpuGrant& part, const GpuReading& gpu, const nvml::Process& seen) const;

  // broker_apply.cc: whole layouts
  struct LayoutChange;
  StatusOr<std::vector<mechanism::OwnInstance>> LayoutOf(const std::string& gpu) const;
  StatusOr<LayoutChange> ChangeOf(const Gpu& gpu, const plan::mig::PartedEntry& wanted) const;
  Status ApplyTo(const LayoutChange& change);
  StatusOr<Json> Apply(const Command& command);
  void RestoreLayout();

  // broker_bare.cc: shares without the interceptor
  Share* BareShareOf(const ProcessId& process, const GpuReading& gpu, const nvml::Process& seen);
  void NoteMember(Share& share, const ProcessId& process);
  std::vector<mechanism::Tenant> TenantsOf(const Share& share) const;
  uint64_t UsedByMembers(const Share& share, size_t position) const;
  std::string WhoRunsIn(const Share& share) const;
  StatusOr<mechanism::Evidence> Verify(Share& share);
  void VerifyBareShares();
  void RetryReleases();
  Status ReleaseRow(const ShareRow& row);

  // broker_shares.cc: making, changing, ending
  StatusOr<Share*> Make(const Command& command, const Peer& peer);
  Status PutInForce(Share& share, const std::vector<SlotRow>& slots);
  void Withdraw(Share& share);
  Status End(Share& share);
  void EndIfDone(const std::string& id);
  Status Set(Share& share, const Command& command);
  Status Hold(Share& share, const ProcessId& process, Fd pidfd);
  void DropRunHolder(const std::string& id, const ProcessId& process);
  StatusOr<std::string> NameFor(const Command& command) const;
  void Allot(const std::string& uuid);
  Status JoinWindows(Share& share);
  void LeaveWindows(Share& share);
  Status Refresh();
  uint64_t UsedOn(const Share& share, size_t position) const;
  Share* FindByName(const std::string& name);
  Share* FindById(const std::string& id);
  std::vector<uint64_t> ContextBytes(const plan::Grant& grant) const;

  // broker_kernel.cc: limits by cgroup
  void OpenKernelLimits();
  void MakeKernelGroup(Share& share);
  void EnterKernelGroup(Share& share, uint32_t pid);
  void LimitInKernel(Share& share, size_t position);
  void DropKernelGroup(Share& share, const Status& why);
  void RemoveKernelGroup(const plan::Grant& grant);
  void RemoveKernelLeftovers();
  void RemoveKernelOrphans();
  std::vector<mechanism::Evidence::Item> KernelEvidence(const Share& share) const;
  Json KernelJson(const Share& share) const;

  // broker_tenants.cc: what stands behind broker.sock
  Status ListenFor(Share& share);
  void OnTenantConnects(const std::string& id);
  void OnTenantSpeaks(const std::string& id, int fd);
  void OnAttach(Share& share, int fd, const std::string& program);
  void OnReattach(Share& share, int fd, const ledger::ReattachRequest& request, int ledger_fd);
  void OnObserve(Share& share, int fd);
  StatusOr<Peer> TenantPeer(int fd) const;
  void WatchSlot(Share& share, const Tenancy::Holder& holder);
  void DropSlot(const std::string& id, uint32_t slot);
  void ClearLeavers(Share& share);
  bool IsTenantOrBelow(uint32_t pid) const;

  // broker_commands.cc: what stands behind mete.sock
  void OnCallerConnects();
  void OnCaller(int fd, uint32_t events);
  void Send(Caller& caller);
  StatusOr<Json> Answer(std::string_view text, const Caller& caller);
  StatusOr<Json> Do(const Command& command, Peer peer);

  // broker_audit.cc: what the driver says
  void OnReading(const Audit::Reading& reading);
  void FindForeigners(Gpu& gpu, const GpuReading& reading);
  void RequestRound();
  void BeginRound();
  void EndRound(bool seen);
  void NoteCharges(bool first);
  void ReturnDeferred();
  void HoldAgainstLedgers();
  void PublishAudits();
  void WatchShares();
  void Note(const std::string& share, const std::string& gpu, const std::string& kind, const std::string& text);

  // broker_bypass.cc: who goes past the quota, and what is done about it
  const Share* ShareAbove(uint32_t pid) const;
  std::vector<ProcessId> Bypassers(const Share& share, size_t position) const;
  void AnswerBypass(Share& share, size_t position, uint64_t now_ns);
  void Thaw(Share& share);

  // broker_report.cc: what commands show
  Json Brief(const Share& share) const;
  StatusOr<Json> Full(Share& share);
  void AddLedger(const Share& share, size_t position, uint64_t now_ns, Json* json) const;
  void AddBare(const Share& share, size_t position, Json* json) const;
  Json Promises(const Share& share, size_t position, uint64_t now_ns) const;
  Json ProcessesOf(const Share& share) const;
  void AddEvidence(const Share& share, mechanism::Evidence* evidence) const;
  Json OnGpu(const Share& share, size_t position) const;
  Json Foreigners() const;
  Json GrantReply(const Share& share) const;

  Options options_;
  std::unique_ptr<nvml::Library> nvml_;
  std::map<std::string, std::unique_ptr<mechanism::Mechanism>> mechanisms_;  // by name; they use nvml_
  std::unique_ptr<mechanism::Journal> journal_;
  std::unique_ptr<mechanism::KernelLimits> kernel_;  // null: not here
  mechanism::KernelLimitFacts kernel_facts_;
  std::string no_kernel_limits_;          // why
  std::vector<plan::Grant> kernel_left_;  // whose groups are still to be removed
  std::unique_ptr<Loop> loop_;
  Fd broker_lock_, book_lock_, listener_;
  std::unique_ptr<Book> book_;
  std::unique_ptr<MigDemand> demand_;                     // uses book_
  std::map<std::string, Gpu> gpus_;                       // by UUID
  std::map<std::string, std::unique_ptr<Share>> shares_;  // by id
  std::map<int, Caller> callers_;
  std::set<std::string> undeleted_;             // rows that a full disk kept us from deleting
  std::map<std::string, ShareRow> unreleased_;  // by id: the device would not take back what was made for them
  std::string audit_failure_;
  unsigned readings_left_ = 0;  // of the round that is under way; 0: none is
  bool round_wanted_ = false;   // one more after it
  uint64_t rounds_ = 0;         // finished
  uint32_t audits_;             // LimitsPage::audits of every share
  bool healed_ = false;         // before that nobody can be told from a stranger
  ledger::ShareKey next_key_ = 1;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Audit> audit_;  // last: ends first
};

}  // namespace mete::share

#endif  // METE_SHARE_BROKER_H_
