// text_table: rows of strings as a table of aligned columns, for logs and terminals.
// Not here: what the cells say (fixed(), human_bytes(), ... of core/text.h); JSON.
// Widths are counted in code points, so that UTF-8 names align; every code point is taken to be one column wide.
// Threads: pure functions. Errors: none; rows may differ in length.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace sluice {

enum class Align { kLeft, kRight };

using TextRow = std::vector<std::string>;

// The first row is the heading. align: by column; columns after its end are aligned as its last entry says, and all are
// flush left when it is empty: {Align::kLeft, Align::kRight} is a name followed by numbers.
// Columns stand `gap` spaces apart, lines are joined with '\n', and no line ends in one or in spaces.
[[nodiscard]] std::string text_table(std::span<const TextRow> rows, std::span<const Align> align = {},
                                     std::size_t gap = 2);

}  // namespace sluice
