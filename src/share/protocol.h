// What commands and the broker say to each other over mete.sock: a stream of frames, each four bytes of length
// (little-endian) and that many bytes of JSON. One request, one reply, any number of times on a connection.
//
//   {"version":1,"op":"make","id":"…32 hex…","kind":"run","share":"a","memory":8589934592,…}
//   {"ok":{…}}   or   {"error":{"code":3,"message":"…"}}
//
// The broker reads requests as a stranger's: bounded in size and depth, every field checked here. The client chooses
// the id of a share it makes, so that it may ask again when the broker died before it answered. Pure; any thread.
#ifndef METE_SHARE_PROTOCOL_H_
#define METE_SHARE_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "plan/values.h"

namespace mete::share {

inline constexpr int kProtocolVersion = 1;
inline constexpr size_t kMostRequestBytes = size_t{64} << 10;
inline constexpr size_t kMostReplyBytes = size_t{16} << 20;

enum class Op { kHello, kMake, kJoin, kLeave, kList, kShow, kSet, kRelease, kPlan, kApply };

// A change of one promise: leave it, drop it, or ask for a new one.
template <typename T>
struct Change {
  bool given = false;
  std::optional<T> value;  // given without a value: no promise any more
};

struct Command {
  Op op = Op::kHello;
  plan::Request request;  // kMake, kPlan (what kMake would do, and why); request.share may be empty: the broker finds a
                          // name from `hint`
  std::vector<gpu::Promise> need;  // kMake, kPlan: beside what request asks
  std::string id;                  // kMake, kLeave: 32 hexadecimal digits
  std::string share;               // kJoin, kShow, kSet, kRelease: a name
  std::string hint;                // kMake: what an automatic name is made from
  bool run = false;                // kMake: the share ends with its last process; the sender holds it
  bool preload = false;            // kMake, kJoin
  std::string text;                // kApply: one configuration in mig-parted's format
  bool dry_run = false;            // kApply: only say what would be done
  bool force = false;              // kRelease: although processes hold slots
  Change<Bytes> memory;            // kSet
  Change<plan::Compute> compute;
  std::optional<plan::OnBypass> on_bypass;  // kMake, kSet
};

// Usage if the text is not a request of this version.
StatusOr<Command> ReadCommand(std::string_view text);
std::string WriteCommand(const Command& command);

std::string WriteReply(const StatusOr<Json>& reply);
// What the broker answered, its error as the same kind of Status. Fault if it cannot be read.
StatusOr<Json> ReadReply(std::string_view text);

std::string Frame(std::string_view payload);

// Puts frames together from a stream's pieces.
class Unframer {
 public:
  explicit Unframer(size_t most_bytes) : most_(most_bytes) {}
  void Append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole frame; nothing while it is incomplete; Usage when it is longer than allowed.
  StatusOr<std::optional<std::string>> Next();

 private:
  size_t most_;
  std::string buffer_;
};

// A new share's id.
std::string RandomId();

}  // namespace mete::share

#endif  // METE_SHARE_PROTOCOL_H_
