#include "share/book.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace mete::share {
namespace {

TEST(Book, ReadsWhatTheFormatBeforeWrote) {
  std::string directory = "/tmp/mete-book-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const std::string path = directory + "/book";
  {
    // As format 1 wrote it, with a share in force.
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, R"(
        CREATE TABLE shares(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind INTEGER NOT NULL, state INTEGER NOT NULL,
                            mechanism TEXT NOT NULL, preload INTEGER NOT NULL, made_at INTEGER NOT NULL) STRICT;
        CREATE TABLE grants(share_id TEXT NOT NULL REFERENCES shares(id) ON DELETE CASCADE, position INTEGER NOT NULL,
                            gpu_uuid TEXT NOT NULL, gpu_index INTEGER NOT NULL, memory INTEGER, compute_mode INTEGER,
                            compute_hundredths INTEGER, PRIMARY KEY(share_id, position)) STRICT;
        INSERT INTO shares VALUES('0123', 'team', 0, 1, 'intercept', 1, 77);
        INSERT INTO grants VALUES('0123', 0, 'GPU-1', 0, 4096, NULL, NULL);
        PRAGMA user_version=1)",
                           nullptr, nullptr, nullptr),
              SQLITE_OK);
    sqlite3_close(db);
  }
  for (int times = 0; times < 2; ++times) {
    const auto book = Book::Open(path);
    ASSERT_TRUE(book.ok()) << Message(book.status());
    const auto rows = (*book)->Shares();
    ASSERT_TRUE(rows.ok()) << Message(rows.status());
    ASSERT_EQ(rows->size(), 1u);
    const plan::Grant& grant = rows->front().grant;
    EXPECT_EQ(grant.share, "team");
    EXPECT_EQ(rows->front().made_at, 77);
    EXPECT_EQ(grant.gpus.at(0).memory, Bytes{4096});
    EXPECT_EQ(grant.on_bypass, times == 0 ? plan::OnBypass::kReport : plan::OnBypass::kKill);
    plan::Grant changed = grant;
    changed.on_bypass = plan::OnBypass::kKill;
    ASSERT_TRUE((*book)->SetAsked(changed).ok());
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace mete::share
