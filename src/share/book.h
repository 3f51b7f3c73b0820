// The book: what is granted on a node, in SQLite, so that a killed broker loses nothing. A row says what is to be true
// before anything is done about it (kMaking before a grant's directory is made, kEnding before it is removed), so that
// on start the book can be compared with what is there.
//
// Ownership: owns the database. Thread rule: one thread; one broker at a time (it holds a lock file). Errors: Lacks
// when the disk is full, the file cannot be written or is damaged (it is left as it is, the message says what to do).
// Format: see README.md. Times are seconds of the wall clock, for people only.
#ifndef METE_SHARE_BOOK_H_
#define METE_SHARE_BOOK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "mechanism/journal.h"
#include "plan/values.h"
#include "share/process.h"

struct sqlite3;
struct sqlite3_stmt;

namespace mete::share {

enum class Kind { kCreated = 0, kRun = 1 };  // kRun: ends when its last process has gone
enum class RowState { kMaking = 0, kInForce = 1, kEnding = 2 };

struct ShareRow {
  plan::Grant grant;  // allotments are not stored: they follow from all holdings of a GPU
  Kind kind = Kind::kCreated;
  RowState state = RowState::kMaking;
  int64_t made_at = 0;
};

struct SlotRow {
  std::string share_id;
  uint32_t slot = 0;
  uint32_t generation = 0;
  ProcessId process;
  std::string program;
};

struct HolderRow {  // a `mete run` that keeps a kRun share alive
  std::string share_id;
  ProcessId process;
};

struct EventRow {
  int64_t at = 0;
  std::string share;  // name; empty: about a GPU or the node
  std::string gpu;    // UUID, or empty
  std::string kind;   // "foreign", "denied", "over-quota", "ended", …
  std::string text;
};

class Book {
 public:
  static StatusOr<std::unique_ptr<Book>> Open(const std::string& path);
  ~Book();
  Book(const Book&) = delete;
  Book& operator=(const Book&) = delete;

  StatusOr<std::vector<ShareRow>> Shares() const;
  StatusOr<std::vector<SlotRow>> Slots() const;
  StatusOr<std::vector<HolderRow>> Holders() const;
  // The newest last; of one share or, when empty, of all.
  StatusOr<std::vector<EventRow>> Events(const std::string& share, int most) const;

  // The whole grant in one transaction, state kMaking, with its first holder if it has one.
  Status Insert(const ShareRow& row, const std::optional<ProcessId>& holder);
  Status SetState(const std::string& share_id, RowState state);
  Status SetAsked(const plan::Grant& grant);  // memory and compute of each GPU, on_bypass; in one transaction
  Status Delete(const std::string& share_id);
  Status PutHolder(const HolderRow& row);
  Status DropHolder(const HolderRow& row);
  Status PutSlot(const SlotRow& row);
  Status DropSlot(const std::string& share_id, uint32_t slot);
  Status AddEvent(const EventRow& row);  // keeps the newest 1000

  // What mechanisms made or changed (mechanism/journal.h), in the order written; an empty text means any.
  StatusOr<std::vector<mechanism::Object>> Objects(const std::string& kind, const std::string& gpu) const;
  Status PutObject(const mechanism::Object& object);
  Status DropObject(const mechanism::Object& object);

  // What was asked of a MIG board: weights by profile; none: nothing yet.
  StatusOr<std::map<std::string, double>> Demand(const std::string& board) const;
  Status SetDemand(const std::string& board, const std::map<std::string, double>& weights);

  // The boot during which the slots and holders were written; a new one means that they are all dead.
  StatusOr<std::string> Boot() const;
  // Forgets what ended with an earlier boot (slots, holders, settings that a driver keeps in memory) and notes this
  // one.
  Status StartBoot(const std::string& boot_id);

 private:
  explicit Book(std::string path) : path_(std::move(path)) {}
  Status Prepare();
  Status Failed(const std::string& what) const;
  Status Execute(const char* sql) const;
  class Statement;

  std::string path_;
  sqlite3* db_ = nullptr;
};

}  // namespace mete::share

#endif  // METE_SHARE_BOOK_H_
