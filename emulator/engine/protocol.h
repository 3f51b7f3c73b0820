// What a client and the engine say to each other, byte for byte: requests and replies on run/engine.sock
// (SOCK_SEQPACKET, one message a packet) and the pages they share. See README.md.
//
//   client → engine: Request                       engine → client: ReplyHeader, payload
//   reply to kHello: HelloInfo, GpuInfo × count    with fds {session page, node page, doorbell}
//   kExportPhysical comes with an fd of the file
//
// Little-endian, fixed layout, versioned. The session page is written by both sides and belongs to one client; the
// engine believes nothing in it: it copies an entry once, checks every index and keeps its own counts. The node page is
// read-only to clients. libc and the C++ runtime only. Times: ns of CLOCK_MONOTONIC.
#ifndef METE_EMULATOR_ENGINE_PROTOCOL_H_
#define METE_EMULATOR_ENGINE_PROTOCOL_H_

#include <sys/un.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "emulator/engine/client.h"
#include "emulator/engine/work.h"

namespace mete::emulator {

inline constexpr uint32_t kProtocolMagic = 0x65476D65;  // "emGe"
inline constexpr uint32_t kProtocolVersion = 5;
inline constexpr size_t kMaxReplyBytes = 128 * 1024;
inline constexpr uint32_t kMaxGpus = 16;

enum class MessageType : uint32_t {
  kHello = 1,
  kCreateContext,     // gpu → a: context
  kDestroyContext,    // context
  kFailContext,       // context, value: Xid
  kReserveMemory,     // context, amount
  kReturnMemory,      // context, amount
  kMemoryInfo,        // gpu → a: free, b: total
  kTakeBacking,       // amount
  kGiveBacking,       // amount
  kCountUnsupported,  // text
  kOpenStream,        // context → a: stream
  kCloseStream,       // value: stream
  kState,             // gpu → GpuState
  kProcesses,         // gpu → ProcessInfo × count
  kSetComputeMode,    // gpu, value
  kStatus,            // → JSON text, for `mete emulate status`
  kStop,              // owner only: the engine ends
  kSetTimeSlice,      // gpu, value; owner only
  kResetGpu,          // gpu; owner only
  kEvents,            // amount: after which → EventInfo × count
  kInjectFault,       // text: FaultSpec; owner only → a: fault
  kClearFaults,       // gpu (or kAllGpus), amount: fault or 0; owner only
  kFaults,            // → FaultInfo × count
  kLeaveWord,         // gpu, value; only where scrubbing is switched off
  kFoundWord,         // gpu → a: word
  kSet,               // gpu, value: GpuSetting, amount; owner only
  kAccounting,        // gpu → AccountingRecord × count
  kMakePhysical,      // context, amount → a: name
  kSharePhysical,     // context, amount: reserved before → a: name
  kHoldPhysical,      // amount: name
  kDropPhysical,      // amount: name
  kExportPhysical,    // amount: name
  kReserveManaged,    // context, amount
  kReturnManaged,     // context, amount
  kSetLimits,         // gpu, context: soft, amount: hard, text: cgroup; owner only
  kGetLimits,         // gpu, text: cgroup → a: hard, b: soft, uint64_t: current
  // MIG; `context` is a GPU instance's id.
  kMigProfiles,             // gpu → MigProfileInfo × count
  kMigState,                // gpu → MigState
  kMigRoom,                 // gpu, context or kNoInstance, value: profile → a: how many more
  kMigMemory,               // gpu, context → a: free, b: total
  kCreateMigContext,        // gpu, context, value: compute instance → a: context
  kSetMigMode,              // gpu, value → a: Result of putting it in force; from here on owner only
  kCreateGpuInstance,       // gpu, value: profile, amount: start → MigGpuInstance
  kCreateComputeInstance,   // gpu, context, value: profile, amount: start → MigComputeInstance
  kDestroyGpuInstance,      // gpu, context
  kDestroyComputeInstance,  // gpu, context, value: compute instance
  kLast = kDestroyComputeInstance,
};

struct Request {
  uint32_t magic, version;
  uint32_t type;   // MessageType
  uint32_t bytes;  // sizeof(Request)
  uint32_t gpu;
  uint32_t value;
  uint64_t context;
  uint64_t amount;
  char text[128];  // not necessarily terminated; or a structure
};
static_assert(sizeof(Request) == 168);

struct ReplyHeader {
  uint32_t magic, version;
  uint32_t type;   // of the request
  int32_t result;  // Result
  uint32_t bytes;  // of the whole reply
  uint32_t count;  // elements of the payload
  uint64_t a, b;
};
static_assert(sizeof(ReplyHeader) == 40);

struct HelloInfo {
  char driver_version[32];
  uint32_t cuda_version;
  uint32_t unscrubbed;  // 1: a test has switched scrubbing off
  uint64_t backing_bytes;
};
static_assert(sizeof(HelloInfo) == 48);

// Checks size, magic, version and type of a packet and copies it out. False: it is no request of ours.
bool DecodeRequest(const void* data, size_t size, Request* request);
// The same for a reply's header; `payload_bytes` is what follows it.
bool DecodeReply(const void* data, size_t size, ReplyHeader* header, size_t* payload_bytes);

// --- Pages -----------------------------------------------------------------------------------------------------------

inline constexpr uint64_t kRingEntries = 4096;
inline constexpr uint32_t kMaxContexts = 256;  // of one client
inline constexpr uint32_t kMaxStreams = 4096;  // of one client
inline constexpr uint32_t kMarkerSlots = 65536;
inline constexpr uint32_t kNoMarker = UINT32_MAX;

// A stream's id: slot in the low 16 bits, generation of the slot (never 0) above. A context's: slot in the low 8 bits.
constexpr uint32_t StreamSlot(uint32_t stream) { return stream & 0xffff; }
constexpr uint32_t ContextSlot(uint64_t context) { return static_cast<uint32_t>(context & 0xff); }

enum class ContextWord : uint32_t { kAlive = 0, kDead = 1, kDeviceLost = 2 };

struct ContextEntry {           // written by the engine
  std::atomic<uint64_t> id;     // 0: free
  std::atomic<uint32_t> state;  // ContextWord
  std::atomic<uint32_t> xid;
  std::atomic<uint32_t> error;  // CUresult
};

struct alignas(64) StreamEntry {  // written by the engine but for `waiters`
  std::atomic<uint64_t> done;     // last sequence done; its low half is the futex word
  std::atomic<uint32_t> waiters;  // threads of the client in FUTEX_WAIT
  std::atomic<uint32_t> id;       // 0: never used; kept when closed, until the slot is used again
  std::atomic<uint32_t> context_slot;
};

struct Submission {
  uint64_t submitted_ns;
  uint32_t stream;
  uint32_t marker_slot;  // where the engine puts the time of a kMarker; kNoMarker for other work
  Work work;
};

struct SessionPage {
  uint32_t magic, version;
  alignas(64) std::atomic<uint64_t> tail;  // client: submissions published
  alignas(64) std::atomic<uint64_t> head;  // engine: submissions taken; its low half is the futex word
  std::atomic<uint32_t> head_waiters;      // threads of the client that wait for room
  alignas(64) ContextEntry contexts[kMaxContexts];
  StreamEntry streams[kMaxStreams];
  std::atomic<uint64_t> marker_time[kMarkerSlots];
  Submission ring[kRingEntries];
};

struct NodePage {
  uint32_t magic, version;
  std::atomic<uint32_t> sleeping;  // 1: the engine sleeps; a submission that begins something new rings the doorbell
  std::atomic<uint32_t> ended;     // 1: the engine has ended in good order
  std::atomic<uint64_t> events;    // published so far; its low half is a futex word
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Work) == 136 && sizeof(Submission) == 152);

// FUTEX_WAIT on the low half of a word until it differs from `seen`, woken, or `timeout_ns` is over; FUTEX_WAKE of all.
// They work across processes.
void FutexWait(const std::atomic<uint64_t>& word, uint64_t seen, uint64_t timeout_ns);
void FutexWakeAll(std::atomic<uint64_t>& word);
uint64_t MonotonicNs();

// The address of engine.sock in a run folder; one too long for a socket address is written through the folder's open
// descriptor. Connecting: a descriptor, or -1 and errno.
sockaddr_un EngineAddress(const std::string& run_folder, int folder);
int ConnectToEngine(const std::string& run_folder);

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_PROTOCOL_H_
