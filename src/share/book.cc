#include "share/book.h"

#include <sqlite3.h>

#include <utility>

#include "plan/choice.h"
#include "share/book_statement.h"

namespace mete::share {
namespace {

constexpr int kSchema = 3;
constexpr const char* kTables = R"(
CREATE TABLE shares(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind INTEGER NOT NULL, state INTEGER NOT NULL,
                    mechanism TEXT NOT NULL, preload INTEGER NOT NULL, made_at INTEGER NOT NULL,
                    on_bypass INTEGER NOT NULL DEFAULT 0, need TEXT NOT NULL DEFAULT '', time_slice INTEGER,
                    processes INTEGER) STRICT;
CREATE TABLE grants(share_id TEXT NOT NULL REFERENCES shares(id) ON DELETE CASCADE, position INTEGER NOT NULL,
                    gpu_uuid TEXT NOT NULL, gpu_index INTEGER NOT NULL, memory INTEGER, compute_mode INTEGER,
                    compute_hundredths INTEGER, profile TEXT, start INTEGER, size INTEGER,
                    PRIMARY KEY(share_id, position)) STRICT;
CREATE TABLE slots(share_id TEXT NOT NULL REFERENCES shares(id) ON DELETE CASCADE, slot INTEGER NOT NULL,
                   generation INTEGER NOT NULL, pid INTEGER NOT NULL, start_time INTEGER NOT NULL,
                   program TEXT NOT NULL, PRIMARY KEY(share_id, slot)) STRICT;
CREATE TABLE holders(share_id TEXT NOT NULL REFERENCES shares(id) ON DELETE CASCADE, pid INTEGER NOT NULL,
                     start_time INTEGER NOT NULL, PRIMARY KEY(share_id, pid, start_time)) STRICT;
CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, share TEXT NOT NULL, gpu TEXT NOT NULL,
                    kind TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TABLE boot(id TEXT NOT NULL) STRICT;
)";
constexpr const char* kNewInThree = R"(
CREATE TABLE objects(share_id TEXT NOT NULL, kind TEXT NOT NULL, gpu TEXT NOT NULL, key TEXT NOT NULL,
                     data TEXT NOT NULL, PRIMARY KEY(share_id, kind, gpu, key)) STRICT;
CREATE TABLE demand(board TEXT NOT NULL, profile TEXT NOT NULL, weight REAL NOT NULL,
                    PRIMARY KEY(board, profile)) STRICT;
)";
constexpr const char* kFromOne = "ALTER TABLE shares ADD COLUMN on_bypass INTEGER NOT NULL DEFAULT 0";
constexpr const char* kFromTwo = R"(
ALTER TABLE shares ADD COLUMN need TEXT NOT NULL DEFAULT '';
ALTER TABLE shares ADD COLUMN time_slice INTEGER;
ALTER TABLE shares ADD COLUMN processes INTEGER;
ALTER TABLE grants ADD COLUMN profile TEXT;
ALTER TABLE grants ADD COLUMN start INTEGER;
ALTER TABLE grants ADD COLUMN size INTEGER;
)";

}  // namespace

StatusOr<std::unique_ptr<Book>> Book::Open(const std::string& path) {
  std::unique_ptr<Book> book(new Book(path));
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(path.c_str(), &book->db_, flags, nullptr) != SQLITE_OK) return book->Failed("open");
  METE_RETURN_IF_ERROR(book->Prepare());
  return book;
}

Book::~Book() { sqlite3_close(db_); }

Status Book::Prepare() {
  sqlite3_busy_timeout(db_, 2000);
  METE_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  // A lost last transaction after a power cut is harmless: the processes it spoke of are gone as well.
  METE_RETURN_IF_ERROR(Execute("PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON"));
  int64_t version = 0;
  {
    Statement check(*this, "PRAGMA quick_check(1)");
    if (!check.Step()) return Failed("check");
    if (const std::string answer = check.Text(); answer != "ok") {
      return Lacks(
          "the book {} is damaged ({}); nothing was changed. Move it aside ('mv {} {}.damaged') to start a new "
          "one; running shares keep their limits but must be made again",
          path_, answer, path_, path_);
    }
    Statement user_version(*this, "PRAGMA user_version");
    if (!user_version.Step()) return Failed("read");
    version = user_version.Number();
  }
  if (version > kSchema) {
    return Lacks("the book {} was written by a newer mete (format {}, this one knows {}); use that one", path_, version,
                 kSchema);
  }
  if (version == kSchema) return OkStatus();
  METE_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  Status made = version == 0 ? Execute(kTables) : OkStatus();
  if (made.ok() && version == 1) made = Execute(kFromOne);
  if (made.ok() && version != 0) made = Execute(kFromTwo);
  if (made.ok()) made = Execute(kNewInThree);
  if (made.ok()) made = Execute("PRAGMA user_version=3");
  if (made.ok()) made = Execute("COMMIT");
  if (!made.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return made;
}

Status Book::Failed(const std::string& what) const {
  const int code = db_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(db_) & 0xff;
  const std::string why = db_ == nullptr ? "out of memory" : sqlite3_errmsg(db_);
  switch (code) {
    case SQLITE_FULL:
      return Lacks(
          "cannot {} the book {}: the disk is full; free some space, or name another place with XDG_STATE_HOME", what,
          path_);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return Lacks(
          "the book {} is damaged ({}); nothing was changed. Move it aside ('mv {} {}.damaged') to start a new "
          "one; running shares keep their limits but must be made again",
          path_, why, path_, path_);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Lacks("cannot {} the book {}: {}; free space or rights there, or name another place with XDG_STATE_HOME",
                   what, path_, why);
    default: return Fault("cannot {} the book {}: {} (SQLite {})", what, path_, why, code);
  }
}

Status Book::Execute(const char* sql) const {
  return sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK ? OkStatus() : Failed("write");
}

StatusOr<std::vector<ShareRow>> Book::Shares() const {
  std::vector<ShareRow> rows;
  Statement shares(
      *this,
      "SELECT id, name, kind, state, mechanism, preload, made_at, on_bypass, need, time_slice, processes FROM shares "
      "ORDER BY made_at, name");
  while (shares.Step()) {
    ShareRow row;
    row.grant.id = shares.Text();
    row.grant.share = shares.Text();
    row.kind = shares.Number() == 1 ? Kind::kRun : Kind::kCreated;
    row.state = static_cast<RowState>(shares.Number());
    row.grant.mechanism = shares.Text();
    row.grant.preload = shares.Number() != 0;
    row.made_at = shares.Number();
    row.grant.on_bypass = static_cast<plan::OnBypass>(shares.Number());
    const std::string need = shares.Text();
    // What another version knew and this one does not is no promise of this one.
    if (auto needs = plan::ParseNeed(need); !need.empty() && needs.ok()) row.grant.need = *std::move(needs);
    if (const auto slice = shares.MaybeNumber()) row.grant.time_slice = static_cast<plan::TimeSlice>(*slice);
    if (const auto processes = shares.MaybeNumber()) row.grant.processes = static_cast<int>(*processes);
    rows.push_back(std::move(row));
  }
  METE_RETURN_IF_ERROR(shares.Done("read"));
  for (ShareRow& row : rows) {
    Statement grants(*this,
                     "SELECT gpu_uuid, gpu_index, memory, compute_mode, compute_hundredths, profile, start, size "
                     "FROM grants WHERE share_id=? ORDER BY position");
    grants.Bind(row.grant.id);
    while (grants.Step()) {
      plan::GpuGrant gpu;
      gpu.uuid = grants.Text();
      gpu.index = static_cast<uint32_t>(grants.Number());
      if (const auto memory = grants.MaybeNumber()) gpu.memory = Bytes{static_cast<uint64_t>(*memory)};
      const auto mode = grants.MaybeNumber();
      const auto percent = grants.MaybeNumber();
      if (mode && percent) {
        gpu.compute = plan::Compute{*mode == 2 ? plan::ComputeMode::kSoft : plan::ComputeMode::kHard,
                                    Percent{static_cast<uint32_t>(*percent)}};
      }
      plan::Instance instance;
      instance.profile = grants.Text();
      instance.start = static_cast<int>(grants.Number());
      instance.size = static_cast<int>(grants.Number());
      if (!instance.profile.empty()) gpu.instance = std::move(instance);
      row.grant.gpus.push_back(std::move(gpu));
    }
    METE_RETURN_IF_ERROR(grants.Done("read"));
  }
  return rows;
}

StatusOr<std::vector<SlotRow>> Book::Slots() const {
  std::vector<SlotRow> rows;
  Statement slots(*this, "SELECT share_id, slot, generation, pid, start_time, program FROM slots");
  while (slots.Step()) {
    SlotRow row;
    row.share_id = slots.Text();
    row.slot = static_cast<uint32_t>(slots.Number());
    row.generation = static_cast<uint32_t>(slots.Number());
    row.process.pid = static_cast<uint32_t>(slots.Number());
    row.process.start_time = static_cast<uint64_t>(slots.Number());
    row.program = slots.Text();
    rows.push_back(std::move(row));
  }
  METE_RETURN_IF_ERROR(slots.Done("read"));
  return rows;
}

StatusOr<std::vector<HolderRow>> Book::Holders() const {
  std::vector<HolderRow> rows;
  Statement holders(*this, "SELECT share_id, pid, start_time FROM holders");
  while (holders.Step()) {
    HolderRow row;
    row.share_id = holders.Text();
    row.process.pid = static_cast<uint32_t>(holders.Number());
    row.process.start_time = static_cast<uint64_t>(holders.Number());
    rows.push_back(std::move(row));
  }
  METE_RETURN_IF_ERROR(holders.Done("read"));
  return rows;
}

StatusOr<std::vector<EventRow>> Book::Events(const std::string& share, int most) const {
  std::vector<EventRow> rows;
  Statement events(*this,
                   "SELECT at, share, gpu, kind, text FROM (SELECT * FROM events WHERE ?1='' OR share=?1 "
                   "ORDER BY id DESC LIMIT ?2) ORDER BY id");
  events.Bind(share).Bind(int64_t{most});
  while (events.Step()) {
    EventRow row;
    row.at = events.Number();
    row.share = events.Text();
    row.gpu = events.Text();
    row.kind = events.Text();
    row.text = events.Text();
    rows.push_back(std::move(row));
  }
  METE_RETURN_IF_ERROR(events.Done("read"));
  return rows;
}

namespace {

std::optional<int64_t> MemoryOf(const plan::GpuGrant& gpu) {
  if (!gpu.memory) return std::nullopt;
  return static_cast<int64_t>(gpu.memory->count);
}
std::optional<int64_t> ModeOf(const plan::GpuGrant& gpu) {
  if (!gpu.compute) return std::nullopt;
  return gpu.compute->mode == plan::ComputeMode::kSoft ? 2 : 1;
}
std::optional<int64_t> Maybe(const std::optional<int>& number) {
  return number ? std::optional<int64_t>(*number) : std::nullopt;
}
std::string NeedText(const std::vector<gpu::Promise>& need) {
  std::string text;
  for (const gpu::Promise promise : need) text += (text.empty() ? "" : ",") + std::string(gpu::Name(promise));
  return text;
}
std::optional<int64_t> PercentOf(const plan::GpuGrant& gpu) {
  if (!gpu.compute) return std::nullopt;
  return gpu.compute->percent.hundredths;
}

}  // namespace

Status Book::Insert(const ShareRow& row, const std::optional<ProcessId>& holder) {
  METE_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  Status status =
      Statement(*this, "INSERT INTO shares VALUES(?,?,?,?,?,?,?,?,?,?,?)")
          .Bind(row.grant.id)
          .Bind(row.grant.share)
          .Bind(static_cast<int64_t>(row.kind))
          .Bind(static_cast<int64_t>(row.state))
          .Bind(row.grant.mechanism)
          .Bind(int64_t{row.grant.preload})
          .Bind(row.made_at)
          .Bind(static_cast<int64_t>(row.grant.on_bypass))
          .Bind(NeedText(row.grant.need))
          .Bind(row.grant.time_slice ? std::optional(static_cast<int64_t>(*row.grant.time_slice)) : std::nullopt)
          .Bind(Maybe(row.grant.processes))
          .Run("write");
  int64_t position = 0;
  for (const plan::GpuGrant& gpu : row.grant.gpus) {
    if (!status.ok()) break;
    status = Statement(*this, "INSERT INTO grants VALUES(?,?,?,?,?,?,?,?,?,?)")
                 .Bind(row.grant.id)
                 .Bind(position++)
                 .Bind(gpu.uuid)
                 .Bind(int64_t{gpu.index})
                 .Bind(MemoryOf(gpu))
                 .Bind(ModeOf(gpu))
                 .Bind(PercentOf(gpu))
                 .Bind(gpu.instance ? std::optional(gpu.instance->profile) : std::nullopt)
                 .Bind(gpu.instance ? std::optional<int64_t>(gpu.instance->start) : std::nullopt)
                 .Bind(gpu.instance ? std::optional<int64_t>(gpu.instance->size) : std::nullopt)
                 .Run("write");
  }
  if (status.ok() && holder) status = PutHolder({row.grant.id, *holder});
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

Status Book::SetState(const std::string& share_id, RowState state) {
  return Statement(*this, "UPDATE shares SET state=? WHERE id=?")
      .Bind(static_cast<int64_t>(state))
      .Bind(share_id)
      .Run("write");
}

Status Book::SetAsked(const plan::Grant& grant) {
  METE_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  Status status = Statement(*this, "UPDATE shares SET on_bypass=? WHERE id=?")
                      .Bind(static_cast<int64_t>(grant.on_bypass))
                      .Bind(grant.id)
                      .Run("write");
  for (const plan::GpuGrant& gpu : grant.gpus) {
    if (!status.ok()) break;
    status =
        Statement(*this,
                  "UPDATE grants SET memory=?, compute_mode=?, compute_hundredths=? WHERE share_id=? AND gpu_uuid=?")
            .Bind(MemoryOf(gpu))
            .Bind(ModeOf(gpu))
            .Bind(PercentOf(gpu))
            .Bind(grant.id)
            .Bind(gpu.uuid)
            .Run("write");
  }
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

Status Book::Delete(const std::string& share_id) {
  return Statement(*this, "DELETE FROM shares WHERE id=?").Bind(share_id).Run("write");
}

Status Book::PutHolder(const HolderRow& row) {
  return Statement(*this, "INSERT OR IGNORE INTO holders VALUES(?,?,?)")
      .Bind(row.share_id)
      .Bind(int64_t{row.process.pid})
      .Bind(static_cast<int64_t>(row.process.start_time))
      .Run("write");
}

Status Book::DropHolder(const HolderRow& row) {
  return Statement(*this, "DELETE FROM holders WHERE share_id=? AND pid=? AND start_time=?")
      .Bind(row.share_id)
      .Bind(int64_t{row.process.pid})
      .Bind(static_cast<int64_t>(row.process.start_time))
      .Run("write");
}

Status Book::PutSlot(const SlotRow& row) {
  return Statement(*this, "INSERT OR REPLACE INTO slots VALUES(?,?,?,?,?,?)")
      .Bind(row.share_id)
      .Bind(int64_t{row.slot})
      .Bind(int64_t{row.generation})
      .Bind(int64_t{row.process.pid})
      .Bind(static_cast<int64_t>(row.process.start_time))
      .Bind(row.program)
      .Run("write");
}

Status Book::DropSlot(const std::string& share_id, uint32_t slot) {
  return Statement(*this, "DELETE FROM slots WHERE share_id=? AND slot=?")
      .Bind(share_id)
      .Bind(int64_t{slot})
      .Run("write");
}

Status Book::AddEvent(const EventRow& row) {
  METE_RETURN_IF_ERROR(Statement(*this, "INSERT INTO events(at, share, gpu, kind, text) VALUES(?,?,?,?,?)")
                           .Bind(row.at)
                           .Bind(row.share)
                           .Bind(row.gpu)
                           .Bind(row.kind)
                           .Bind(row.text)
                           .Run("write"));
  return Execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - 1000");
}

StatusOr<std::string> Book::Boot() const {
  Statement boot(*this, "SELECT id FROM boot");
  std::string id;
  while (boot.Step()) id = boot.Text();
  METE_RETURN_IF_ERROR(boot.Done("read"));
  return id;
}

Status Book::StartBoot(const std::string& boot_id) {
  METE_RETURN_IF_ERROR(
      Execute("BEGIN IMMEDIATE; DELETE FROM slots; DELETE FROM holders; DELETE FROM boot;"
              "DELETE FROM objects WHERE kind IN ('compute-mode', 'time-slice')"));
  Status status = Statement(*this, "INSERT INTO boot VALUES(?)").Bind(boot_id).Run("write");
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

}  // namespace mete::share
