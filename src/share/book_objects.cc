// What mechanisms have made and changed on the node, and what is asked of MIG boards.
#include "share/book.h"
#include "share/book_statement.h"

namespace mete::share {

StatusOr<std::vector<mechanism::Object>> Book::Objects(const std::string& kind, const std::string& gpu) const {
  std::vector<mechanism::Object> objects;
  Statement rows(*this,
                 "SELECT share_id, kind, gpu, key, data FROM objects WHERE (?1='' OR kind=?1) AND (?2='' OR gpu=?2) "
                 "ORDER BY rowid");
  rows.Bind(kind).Bind(gpu);
  while (rows.Step()) {
    mechanism::Object object;
    object.share_id = rows.Text();
    object.kind = rows.Text();
    object.gpu = rows.Text();
    object.key = rows.Text();
    METE_ASSIGN_OR_RETURN(object.data, ParseJson(rows.Text(), "an object of the book"));
    objects.push_back(std::move(object));
  }
  METE_RETURN_IF_ERROR(rows.Done("read"));
  return objects;
}

Status Book::PutObject(const mechanism::Object& object) {
  return Statement(*this,
                   "INSERT INTO objects VALUES(?,?,?,?,?) ON CONFLICT(share_id, kind, gpu, key) DO UPDATE SET "
                   "data=excluded.data")
      .Bind(object.share_id)
      .Bind(object.kind)
      .Bind(object.gpu)
      .Bind(object.key)
      .Bind(object.data.dump())
      .Run("write");
}

Status Book::DropObject(const mechanism::Object& object) {
  return Statement(*this, "DELETE FROM objects WHERE share_id=? AND kind=? AND gpu=? AND key=?")
      .Bind(object.share_id)
      .Bind(object.kind)
      .Bind(object.gpu)
      .Bind(object.key)
      .Run("write");
}

StatusOr<std::map<std::string, double>> Book::Demand(const std::string& board) const {
  std::map<std::string, double> weights;
  Statement rows(*this, "SELECT profile, weight FROM demand WHERE board=?");
  rows.Bind(board);
  while (rows.Step()) {
    const std::string profile = rows.Text();
    weights[profile] = rows.Real();
  }
  METE_RETURN_IF_ERROR(rows.Done("read"));
  return weights;
}

Status Book::SetDemand(const std::string& board, const std::map<std::string, double>& weights) {
  METE_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  Status status = OkStatus();
  for (const auto& [profile, weight] : weights) {
    if (!status.ok()) break;
    status = Statement(*this, "INSERT OR REPLACE INTO demand VALUES(?,?,?)")
                 .Bind(board)
                 .Bind(profile)
                 .Bind(weight)
                 .Run("write");
  }
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

}  // namespace mete::share
