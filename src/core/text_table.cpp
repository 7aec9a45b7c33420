#include "core/text_table.h"

#include <algorithm>

namespace sluice {
namespace {

// Continuation bytes of UTF-8 begin with the bits 10.
std::size_t width_of(const std::string& cell) {
  return static_cast<std::size_t>(
      std::ranges::count_if(cell, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

Align align_of(std::span<const Align> align, std::size_t column) {
  return align.empty() ? Align::kLeft : align[std::min(column, align.size() - 1)];
}

std::string line_of(const TextRow& row, std::span<const std::size_t> widths, std::span<const Align> align,
                    std::size_t gap) {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string padding(widths[i] - width_of(row[i]), ' ');
    if (i > 0) line.append(gap, ' ');
    line += align_of(align, i) == Align::kRight ? padding + row[i] : row[i] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string text_table(std::span<const TextRow> rows, std::span<const Align> align, std::size_t gap) {
  std::vector<std::size_t> widths;
  for (const TextRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const TextRow& row : rows) {
    if (&row != rows.data()) text += '\n';
    text += line_of(row, widths, align, gap);
  }
  return text;
}

}  // namespace sluice
