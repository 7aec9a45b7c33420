// text_table: formats rows of strings as a table of aligned columns, for logs and terminals.
// Widths are counted in UTF-8 code points; every code point counts as one column. Never throws; rows may differ in
// length.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace sluice {

enum class Align { kLeft, kRight };

using TextRow = std::vector<std::string>;

// The first row is the heading. `align` is by column; its last entry applies to all further columns, and an empty
// `align` means left. {Align::kLeft, Align::kRight} aligns a name followed by numbers.
// Columns are `gap` spaces apart. Lines are joined with '\n'; no line has trailing spaces, and the last has no '\n'.
[[nodiscard]] std::string text_table(std::span<const TextRow> rows, std::span<const Align> align = {},
                                     std::size_t gap = 2);

}  // namespace sluice
