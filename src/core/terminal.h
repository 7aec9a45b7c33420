// terminal: what a terminal can show, and fitting a line into its width. Threads: any. Errors: never throws.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// True if the descriptor is a terminal on which a line can be redrawn; false for TERM=dumb.
[[nodiscard]] bool can_redraw(int descriptor);

// Like can_redraw(), but false if NO_COLOR is set (no-color.org).
[[nodiscard]] bool takes_colours(int descriptor);

// Current width; $COLUMNS if the terminal does not report it, 80 if that is not set.
[[nodiscard]] int terminal_columns(int descriptor);

// `line` cut to `columns` columns, without control characters. Fields, separated by two spaces, that do not fit are
// dropped whole; the first one is cut. UTF-8 characters stay whole; wide ones count as two columns.
[[nodiscard]] std::string fit_to_width(std::string_view line, int columns);

}  // namespace sluice
