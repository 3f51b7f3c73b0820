// A hostile client: the input is a sequence of steps, each a packet for the engine, bytes scribbled over the session
// page, or the passing of time. The engine must neither crash nor hang, must refuse what is no request, and must have
// everything back when the session ends. A second, honest session goes on undisturbed; unless the hostile one is the
// node's owner (the input's first byte is odd), who may break GPUs and restart the driver.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "emulator/engine/engine.h"
#include "gpu/mig.h"

namespace mete::emulator {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "engine_fuzz: %s\n", what);
  std::abort();
}

constexpr uint32_t kHostileUid = 1;

EngineSettings Settings(bool owner) {
  EngineSettings settings;
  settings.driver_version = "580.65.06";
  settings.cuda_version = 13000;
  settings.backing_bytes = 1 << 20;
  settings.owner_uid = owner ? kHostileUid : 0;
  settings.gpus.resize(2);
  for (auto& gpu : settings.gpus) {
    gpu.info.memory_bytes = uint64_t{1} << 34;
    gpu.info.context_bytes = 1 << 28;
    gpu.info.max_power_mw = 100'000;
    gpu.info.compute_major = owner ? 8 : 7;
    gpu.mig = gpu::MigTables::BuiltIn().Find("a100-sxm4-40gb");
  }
  return settings;
}

struct Input {
  const uint8_t* data;
  size_t size;
  void Take(void* out, size_t bytes) {
    std::memset(out, 0, bytes);
    const size_t n = bytes < size ? bytes : size;
    std::memcpy(out, data, n);
    data += n;
    size -= n;
  }
  uint32_t Word() {
    uint32_t word;
    Take(&word, sizeof(word));
    return word;
  }
};

ReplyHeader Send(Engine& engine, uint64_t session, const Request& request, uint64_t now, Engine::Handled* handled) {
  std::vector<uint8_t> reply;
  *handled = engine.Handle(session, &request, sizeof(request), now, &reply);
  ReplyHeader header = {};
  size_t payload = 0;
  if (*handled != Engine::Handled::kHangUp) {
    Require(DecodeReply(reply.data(), reply.size(), &header, &payload), "a reply that cannot be decoded");
    Require(reply.size() <= kMaxReplyBytes, "a reply that is too long");
  }
  return header;
}

Request Make(MessageType type) {
  Request request = {};
  request.magic = kProtocolMagic;
  request.version = kProtocolVersion;
  request.type = static_cast<uint32_t>(type);
  request.bytes = sizeof(request);
  return request;
}

}  // namespace
}  // namespace mete::emulator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using mete::emulator::Engine, mete::emulator::SessionPage, mete::emulator::Request, mete::emulator::ReplyHeader;
  using mete::emulator::Input, mete::emulator::MessageType, mete::emulator::Submission, mete::emulator::WorkKind;
  using mete::emulator::kNoMarker, mete::emulator::kRingEntries, mete::emulator::Make, mete::emulator::Require;
  using mete::emulator::Send, mete::emulator::Settings, mete::emulator::StreamSlot;
  static SessionPage* const hostile = new SessionPage;
  static SessionPage* const honest = new SessionPage;
  hostile->tail = hostile->head = 0;
  honest->tail = honest->head = 0;
  uint64_t now = 1'000'000'000;
  const bool owner = size > 0 && data[0] % 2 == 1;
  Engine engine(Settings(owner), now);
  const uint64_t bad = engine.AddSession(hostile, {1, 1, "hostile"});
  const uint64_t good = engine.AddSession(honest, {2, 2, "honest"});
  Engine::Handled handled;
  Request request = Make(MessageType::kCreateContext);
  const uint64_t context = Send(engine, good, request, now, &handled).a;
  request = Make(MessageType::kOpenStream);
  request.context = context;
  const auto stream = static_cast<uint32_t>(Send(engine, good, request, now, &handled).a);

  Input input = {data + (size > 0), size - (size > 0)};
  uint64_t bad_context = 0;
  uint32_t bad_stream = 0;
  bool dropped = false;
  for (int step = 0; input.size > 0 && step < 64 && !dropped; ++step) {
    const uint32_t choice = input.Word();
    switch (choice % 6) {
      case 0: {  // raw bytes as a packet
        uint8_t packet[sizeof(Request) + 8];
        const size_t bytes = choice / 6 % (sizeof(packet) + 1);
        input.Take(packet, bytes);
        std::vector<uint8_t> reply;
        if (engine.Handle(bad, packet, bytes, now, &reply) == Engine::Handled::kHangUp) dropped = true;
        break;
      }
      case 1: {  // a well-formed packet with arbitrary arguments
        request = Make(static_cast<MessageType>(1 + choice / 6 % static_cast<uint32_t>(MessageType::kLast)));
        input.Take(reinterpret_cast<uint8_t*>(&request) + offsetof(Request, gpu),
                   sizeof(Request) - offsetof(Request, gpu));
        if (choice & 1u << 31) request.context = bad_context;
        if (choice & 1u << 30) request.value = bad_stream;
        request.gpu %= 3;
        const ReplyHeader reply = Send(engine, bad, request, now, &handled);
        if (reply.type == static_cast<uint32_t>(MessageType::kCreateContext) && reply.result == 0)
          bad_context = reply.a;
        if (reply.type == static_cast<uint32_t>(MessageType::kOpenStream) && reply.result == 0) {
          bad_stream = static_cast<uint32_t>(reply.a);
        }
        break;
      }
      case 2: {  // submissions of arbitrary bytes
        const uint64_t tail = hostile->tail;
        Submission& entry = hostile->ring[tail % kRingEntries];
        input.Take(&entry, sizeof(entry));
        if (choice & 1u << 31) entry.stream = bad_stream;
        if (choice & 1u << 30) entry.work.kind = static_cast<WorkKind>(choice / 6 % 7);
        hostile->tail = tail + 1 + (choice & 1u << 29 ? input.Word() : 0);
        break;
      }
      case 3: {  // scribbling
        auto* bytes = reinterpret_cast<uint8_t*>(hostile);
        const size_t at = input.Word() % (sizeof(SessionPage) - 16);
        input.Take(bytes + at, 16);
        break;
      }
      default:
        now += choice % 3'000'000;
        engine.AdvanceTo(now);
        (void)engine.NextEventNs();
        (void)engine.RingsPending();
    }
    for (const uint64_t broken : engine.TakeBroken()) {
      Require(broken == bad || owner, "the honest session was broken");
      dropped = dropped || broken == bad;
    }
  }
  engine.RemoveSession(bad, now);
  if (owner) {  // nothing is promised to others, but the engine goes on
    engine.AdvanceTo(now + 10'000'000);
    engine.RemoveSession(good, now + 10'000'000);
    return 0;
  }
  request = Make(MessageType::kMemoryInfo);
  const ReplyHeader memory = Send(engine, good, request, now, &handled);
  Require(memory.a == memory.b - (1 << 28), "memory of the ended session is not back");

  Submission& entry = honest->ring[0];
  entry = {};
  entry.stream = stream;
  entry.submitted_ns = now;
  entry.marker_slot = kNoMarker;
  entry.work.kind = WorkKind::kKernel;
  honest->tail = 1;
  engine.AdvanceTo(now + 10'000'000);
  Require(honest->streams[StreamSlot(stream)].done == 1, "the honest session's kernel did not run");
  return 0;
}
