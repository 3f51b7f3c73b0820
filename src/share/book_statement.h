// A prepared statement of the book. Internal to it (book.cc, book_objects.cc).
#ifndef METE_SHARE_BOOK_STATEMENT_H_
#define METE_SHARE_BOOK_STATEMENT_H_

#include <sqlite3.h>

#include <optional>
#include <string>

#include "share/book.h"

namespace mete::share {

// One prepared statement; binds in order, reads columns in order. NULL is an absent optional.
class Book::Statement {
 public:
  Statement(const Book& book, const char* sql) : book_(book) {
    code_ = sqlite3_prepare_v2(book.db_, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(const std::string& text) {
    if (code_ == SQLITE_OK) {
      code_ = sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    }
    return *this;
  }
  Statement& Bind(const std::optional<std::string>& text) {
    if (text) return Bind(*text);
    return Bind(std::optional<int64_t>());
  }
  Statement& Bind(double value) {
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_double(statement_, ++bound_, value);
    return *this;
  }
  Statement& Bind(int64_t value) {
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& Bind(const std::optional<int64_t>& value) {
    if (value) return Bind(*value);
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_null(statement_, ++bound_);
    return *this;
  }
  // True: a row is there. False: no more rows, or a failure (see Done).
  bool Step() {
    if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
    code_ = sqlite3_step(statement_);
    read_ = 0;
    return code_ == SQLITE_ROW;
  }
  // After the last row.
  Status Done(const std::string& what) { return code_ == SQLITE_DONE ? OkStatus() : book_.Failed(what); }
  Status Run(const std::string& what) {
    Step();
    return Done(what);
  }
  std::string Text() {
    const int column = read_++;
    const unsigned char* text = sqlite3_column_text(statement_, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return text == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(text), size);
  }
  int64_t Number() { return sqlite3_column_int64(statement_, read_++); }
  double Real() { return sqlite3_column_double(statement_, read_++); }
  std::optional<int64_t> MaybeNumber() {
    if (sqlite3_column_type(statement_, read_) != SQLITE_NULL) return Number();
    ++read_;
    return std::nullopt;
  }

 private:
  const Book& book_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
  int bound_ = 0;
  int read_ = 0;
};

}  // namespace mete::share

#endif  // METE_SHARE_BOOK_STATEMENT_H_
