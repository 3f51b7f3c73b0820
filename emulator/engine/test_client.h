// A client of a TestNode: what the libraries link, with the engine called instead of written to. For requests only, not
// for streams: there is no page behind it. Not thread-safe; the node outlives it.
#ifndef METE_EMULATOR_ENGINE_TEST_CLIENT_H_
#define METE_EMULATOR_ENGINE_TEST_CLIENT_H_

#include <string>
#include <vector>

#include "emulator/engine/socket_client.h"
#include "emulator/engine/test_node.h"

namespace mete::emulator {

class TestClient final : public SocketClient {
 public:
  TestClient(TestNode& node, uint32_t pid, uint32_t uid) : node_(node), process_(node.AddProcess(pid, uid)) {
    Request request = TestNode::Make(MessageType::kHello);
    ReplyHeader reply = {};
    std::string payload;
    Call(request, &reply, &payload, nullptr, -1);
    TakeHello(reply, payload);
  }
  ~TestClient() override { node_.End(process_); }

 protected:
  Result Call(Request& request, ReplyHeader* reply, std::string* payload, int*, int) override {
    const Request known = TestNode::Make(static_cast<MessageType>(request.type));
    request.magic = known.magic;
    request.version = known.version;
    request.bytes = known.bytes;
    std::vector<uint8_t> bytes;
    *reply = node_.Call(process_, request, &bytes);
    if (payload != nullptr) payload->assign(bytes.begin(), bytes.end());
    return static_cast<Result>(reply->result);
  }

 private:
  TestNode& node_;
  TestNode::Process process_;
};

}  // namespace mete::emulator

#endif  // METE_EMULATOR_ENGINE_TEST_CLIENT_H_
