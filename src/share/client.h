// A command's side of the conversation with the broker, which is started by need.
//
//   Client client(places, [&] { return StartBroker(places); });
//   METE_ASSIGN_OR_RETURN(Json reply, client.Call(command));
//
// A broker that dies or leaves before it answered is started again and asked again: requests are made so that asking
// twice does nothing twice. Ownership: owns its connection. Thread rule: one thread.
// Errors: what the broker answers; Lacks when it cannot be started or does not answer.
#ifndef METE_SHARE_CLIENT_H_
#define METE_SHARE_CLIENT_H_

#include <functional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "share/places.h"
#include "share/process.h"
#include "share/protocol.h"

namespace mete::share {

class Client {
 public:
  // `start` starts a broker that listens when it returns.
  Client(Places places, std::function<Status()> start) : places_(std::move(places)), start_(std::move(start)) {}

  StatusOr<Json> Call(const Command& command);
  // Readable when the broker has gone; -1 while there is no connection.
  int fd() const { return fd_.get(); }
  void Close() { fd_.Reset(); }

 private:
  Status Connect();
  bool TryConnect();
  bool AwaitListening();
  // The reply's text; Unavailable-like failures of the connection are `*lost`.
  StatusOr<std::string> Exchange(const std::string& frame, bool* lost);

  Places places_;
  std::function<Status()> start_;
  Fd fd_;
};

}  // namespace mete::share

#endif  // METE_SHARE_CLIENT_H_
