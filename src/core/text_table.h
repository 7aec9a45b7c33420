// text_table: formats rows of strings as aligned columns. Every UTF-8 code point counts as one column. Never throws;
// rows may differ in length.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace sluice {

enum class Align { kLeft, kRight };

using TextRow = std::vector<std::string>;

// The first row is the heading. `align`: by column, the last entry for all further ones; empty: left. Columns are `gap`
// spaces apart; no line has trailing spaces, and the last has no '\n'.
[[nodiscard]] std::string text_table(std::span<const TextRow> rows, std::span<const Align> align = {},
                                     std::size_t gap = 2);

}  // namespace sluice
