// Tables for people: aligned with spaces, no colour codes, wrapped to the width of the terminal.
//
//   Table table({{"GPU"}, {"memory", Align::kRight}, {"why", Align::kLeft, /*wrap=*/true}});
//   table.AddRow({"0", "40 GiB", "no MIG on this board"});
//   fmt::print("{}", table.Render(TerminalWidth(1)));
//
// Not thread-safe; copies are independent. Widths are terminal columns, one per UTF-8 code point.
#ifndef METE_BASE_TABLE_H_
#define METE_BASE_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace mete {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
  bool wrap = false;  // may be broken over several lines when the table is wider than it may be
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  // Missing cells are empty; cells beyond the last column are dropped.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // The title line (left out when every title is empty) and the rows, each line ended by a newline and without
  // trailing spaces, indented by `indent`. Width 0: as wide as it needs. Columns that may not wrap keep their width
  // even when that exceeds `width`; the others share what is left, never less than 12 columns each.
  std::string Render(size_t width = 0, size_t indent = 0) const;

 private:
  std::vector<size_t> Widths(size_t width, size_t indent) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Columns of the terminal behind `fd`; 120 when it is not a terminal.
size_t TerminalWidth(int fd);

}  // namespace mete

#endif  // METE_BASE_TABLE_H_
