// log: lines for people, to standard error and to the run's log.txt. Machine-readable records are metrics.jsonl, not
// this. Backed by spdlog, which stays inside log.cpp. On a terminal lines begin with the time of day, warnings and
// errors are coloured (not with NO_COLOR or TERM=dumb), and one line of progress stands below them; elsewhere, and in
// log.txt, lines begin with date, time and level, and no escape sequence is written. Threads: any, except for
// log_to_file() and quiet_console(). A file that can no longer be written (full disk) is dropped, and the program goes
// on: one warning goes to standard error.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/concat.h"

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Requires: a message of one line; log_lines() and log_table() take several. Control characters in it, of a name in
// somebody's file, become '?'.
void log(LogLevel level, std::string_view message);
// The same of parts, which are written one behind the other.
template <typename... Parts>
void log_debug(const Parts&... parts) {
  log(LogLevel::kDebug, concat(parts...));
}
template <typename... Parts>
void log_info(const Parts&... parts) {
  log(LogLevel::kInfo, concat(parts...));
}
template <typename... Parts>
void log_warning(const Parts&... parts) {
  log(LogLevel::kWarning, concat(parts...));
}
template <typename... Parts>
void log_error(const Parts&... parts) {
  log(LogLevel::kError, concat(parts...));
}
// Each line of `text` as a message of its own.
void log_lines(std::string_view text, LogLevel level = LogLevel::kInfo);
// The lines of a table as they are, without a time before them.
void log_table(std::string_view text, LogLevel level = LogLevel::kInfo);
// A line of fields, two spaces between them, of which a terminal shows those that fit into its width; all are in the
// file.
void log_fields(std::string_view message);
// The one line that a run comes to, which a quiet console shows too.
void log_result(std::string_view message);

// Lines below `level` are dropped. Default: kInfo.
void set_log_level(LogLevel level);

// From here on standard error shows warnings, errors and results only, and no progress. log.txt has all.
void quiet_console(bool quiet = true);

// From here on every line is also appended to `file`. Throws StorageError when it cannot be opened, OutOfMemoryError if
// no more files can be.
// Requires: no other thread logs meanwhile; call it before the threads that may log are started.
void log_to_file(const std::filesystem::path& file);

// Shows `line` as the one line that is redrawn at the bottom of a terminal; log lines appear above it. It is cut to the
// terminal's width, whole fields at a time (fit_to_width() of core/terminal.h).
// When standard error is no terminal nothing is shown. An empty line clears it.
void show_progress(std::string_view line);
[[nodiscard]] bool progress_is_shown();  // standard error is a terminal, and not quiet

}  // namespace sluice
