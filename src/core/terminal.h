// terminal: what a terminal can show, and a line that fits into it. Not here: log lines (log.h).
// Threads: any. Errors: none.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// A terminal on which a line can be drawn anew: not one that calls itself TERM=dumb.
[[nodiscard]] bool can_redraw(int descriptor);

// The same, unless NO_COLOR is set (no-color.org).
[[nodiscard]] bool takes_colours(int descriptor);

// How wide it is now; where it does not say, $COLUMNS, else 80.
[[nodiscard]] int terminal_columns(int descriptor);

// A line of at most `columns` columns without control characters. Two spaces part its fields: those at the end that do
// not fit are left out whole, so that no number is cut short; the first one is cut where even that is too long.
// UTF-8 stays whole; East Asian characters and pictures count as two columns.
[[nodiscard]] std::string fit_to_width(std::string_view line, int columns);

}  // namespace sluice
