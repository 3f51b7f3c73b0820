#include "base/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace mete {
namespace {

constexpr size_t kGap = 2;  // spaces between columns
constexpr size_t kNarrowest = 12;

void AppendLine(std::string& out, const std::vector<std::string>& cells, const std::vector<Column>& columns,
                const std::vector<size_t>& widths, size_t indent) {
  std::string line(indent, ' ');
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line.append(kGap, ' ');
    const size_t own = DisplayWidth(cells[i]);
    const size_t padding = widths[i] > own ? widths[i] - own : 0;
    if (columns[i].align == Align::kRight) line.append(padding, ' ');
    line += cells[i];
    if (columns[i].align == Align::kLeft) line.append(padding, ' ');
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line;
  out += '\n';
}

// One table row, as many lines as its tallest cell.
void AppendRow(std::string& out, const std::vector<std::string>& cells, const std::vector<Column>& columns,
               const std::vector<size_t>& widths, size_t indent) {
  std::vector<std::vector<std::string>> wrapped;
  size_t lines = 1;
  for (size_t i = 0; i < cells.size(); ++i) {
    wrapped.push_back(Wrap(cells[i], columns[i].wrap ? widths[i] : 0));
    lines = std::max(lines, wrapped.back().size());
  }
  for (size_t line = 0; line < lines; ++line) {
    std::vector<std::string> parts;
    for (const auto& cell : wrapped) parts.push_back(line < cell.size() ? cell[line] : std::string());
    AppendLine(out, parts, columns, widths, indent);
  }
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::Widths(size_t width, size_t indent) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t widest = DisplayWidth(columns_[i].title);
    for (const auto& row : rows_) {
      for (const std::string& line : Wrap(row[i], 0)) widest = std::max(widest, DisplayWidth(line));
    }
    widths.push_back(widest);
  }
  if (width == 0) return widths;
  size_t total = indent + (columns_.empty() ? 0 : kGap * (columns_.size() - 1));
  for (size_t column : widths) total += column;
  // Take one column at a time from the widest wrapping column until the table fits or nothing more can give.
  while (total > width) {
    size_t* widest = nullptr;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const size_t least = std::max(kNarrowest, DisplayWidth(columns_[i].title));
      if (columns_[i].wrap && widths[i] > least && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
    --total;
  }
  return widths;
}

std::string Table::Render(size_t width, size_t indent) const {
  const std::vector<size_t> widths = Widths(width, indent);
  std::string out;
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  if (std::any_of(titles.begin(), titles.end(), [](const std::string& title) { return !title.empty(); })) {
    AppendLine(out, titles, columns_, widths, indent);
  }
  for (const auto& row : rows_) AppendRow(out, row, columns_, widths, indent);
  return out;
}

size_t TerminalWidth(int fd) {
  constexpr size_t kPlain = 120;
  winsize size{};
  if (isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kPlain;
}

}  // namespace mete
