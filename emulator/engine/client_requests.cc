// Requests of a client that are one packet each way: memory, what NVML reads and sets, MIG.
#include <algorithm>
#include <cstring>

#include "emulator/engine/socket_client.h"

namespace mete::emulator {

Result SocketClient::Simple(MessageType type, uint64_t context, uint64_t amount, uint32_t value) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.context = context;
  request.amount = amount;
  request.value = value;
  return Plain(request);
}

Result SocketClient::Plain(Request request) {
  ReplyHeader reply;
  return Call(request, &reply, nullptr);
}

Result SocketClient::Named(MessageType type, uint64_t context, uint64_t bytes, uint64_t* name) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.context = context;
  request.amount = bytes;
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) *name = reply.a;
  return result;
}

Result SocketClient::ExportPhysical(uint64_t name, int descriptor) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kExportPhysical);
  request.amount = name;
  ReplyHeader reply;
  return Call(request, &reply, nullptr, nullptr, descriptor);
}

Result SocketClient::SetLimits(uint32_t gpu, const std::string& group, uint64_t soft, uint64_t hard) {
  Request request = {};
  if (group.size() >= sizeof(request.text)) return Result::kInvalid;
  request.type = static_cast<uint32_t>(MessageType::kSetLimits);
  request.gpu = gpu;
  request.context = soft;
  request.amount = hard;
  std::memcpy(request.text, group.data(), group.size());
  ReplyHeader reply;
  return Call(request, &reply, nullptr);
}

Result SocketClient::GetLimits(uint32_t gpu, const std::string& group, uint64_t* soft, uint64_t* hard,
                               uint64_t* current) {
  Request request = {};
  if (group.size() >= sizeof(request.text)) return Result::kInvalid;
  request.type = static_cast<uint32_t>(MessageType::kGetLimits);
  request.gpu = gpu;
  std::memcpy(request.text, group.data(), group.size());
  ReplyHeader reply;
  std::string payload;
  const Result result = Call(request, &reply, &payload);
  if (result != Result::kOk) return result;
  if (payload.size() != sizeof(*current)) return Result::kLost;
  *hard = reply.a;
  *soft = reply.b;
  std::memcpy(current, payload.data(), sizeof(*current));
  return result;
}

Result SocketClient::OfGpu(MessageType type, uint32_t gpu, uint32_t value, uint64_t amount) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.gpu = gpu;
  request.value = value;
  request.amount = amount;
  return Plain(request);
}

Result SocketClient::CreateContext(uint32_t gpu, uint64_t* context) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kCreateContext);
  request.gpu = gpu;
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) *context = reply.a;
  return result;
}

Result SocketClient::MemoryInfo(uint32_t gpu, uint64_t* free_bytes, uint64_t* total_bytes) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kMemoryInfo);
  request.gpu = gpu;
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) {
    *free_bytes = reply.a;
    *total_bytes = reply.b;
  }
  return result;
}

void SocketClient::CountUnsupportedCall(const char* symbol) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kCountUnsupported);
  std::memcpy(request.text, symbol, std::min(std::strlen(symbol), sizeof(request.text)));
  ReplyHeader reply;
  Call(request, &reply, nullptr);
}

uint32_t SocketClient::FoundWord(uint32_t gpu) {
  if (!unscrubbed_) return 0;
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kFoundWord);
  request.gpu = gpu;
  ReplyHeader reply;
  return Call(request, &reply, nullptr) == Result::kOk ? static_cast<uint32_t>(reply.a) : 0;
}

// --- For NVML ------------------------------------------------------------------------------------------------------

Result SocketClient::State(uint32_t gpu, GpuState* state) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kState);
  request.gpu = gpu;
  return One(request, state);
}

Result SocketClient::Processes(uint32_t gpu, std::vector<ProcessInfo>* processes) {
  const Result result = List(MessageType::kProcesses, gpu, 0, processes);
  if (result != Result::kOk) return result;
  for (ProcessInfo& process : *processes) process.name[sizeof(process.name) - 1] = 0;
  return result;
}

Result SocketClient::InjectFault(const FaultSpec& fault, uint64_t* id) {
  Request request = {};
  request.type = static_cast<uint32_t>(MessageType::kInjectFault);
  static_assert(sizeof(fault) <= sizeof(request.text));
  std::memcpy(request.text, &fault, sizeof(fault));
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  *id = result == Result::kOk ? reply.a : 0;
  return result;
}

// --- MIG -----------------------------------------------------------------------------------------------------------

Request SocketClient::OfMig(MessageType type, uint32_t gpu, uint32_t gpu_instance, uint32_t value, uint64_t amount) {
  Request request = {};
  request.type = static_cast<uint32_t>(type);
  request.gpu = gpu;
  request.context = gpu_instance;
  request.value = value;
  request.amount = amount;
  return request;
}

Result SocketClient::CreateMigContext(uint32_t gpu, uint32_t gpu_instance, uint32_t compute_instance,
                                      uint64_t* context) {
  Request request = OfMig(MessageType::kCreateMigContext, gpu, gpu_instance, compute_instance);
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) *context = reply.a;
  return result;
}

Result SocketClient::MigMemoryInfo(uint32_t gpu, uint32_t gpu_instance, uint64_t* free_bytes, uint64_t* total_bytes) {
  Request request = OfMig(MessageType::kMigMemory, gpu, gpu_instance, 0);
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result != Result::kOk) return result;
  *free_bytes = reply.a;
  *total_bytes = reply.b;
  return result;
}

Result SocketClient::MigRoom(uint32_t gpu, uint32_t gpu_instance, uint32_t profile_id, uint32_t* count) {
  Request request = OfMig(MessageType::kMigRoom, gpu, gpu_instance, profile_id);
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) *count = static_cast<uint32_t>(reply.a);
  return result;
}

Result SocketClient::SetMigMode(uint32_t gpu, bool on, Result* activation) {
  Request request = OfMig(MessageType::kSetMigMode, gpu, 0, on ? 1 : 0);
  ReplyHeader reply;
  const Result result = Call(request, &reply, nullptr);
  if (result == Result::kOk) *activation = static_cast<Result>(reply.a);
  return result;
}

}  // namespace mete::emulator
