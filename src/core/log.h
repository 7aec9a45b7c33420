// log: human-readable lines to standard error and to the run's log.txt. On a terminal, lines begin with the time of
// day, one progress line stays at the bottom, and warnings and errors are coloured (not with NO_COLOR or TERM=dumb).
// Elsewhere, lines begin with date, time and level.
// Threads: any, except for log_to_file() and quiet_console(). If the file cannot be written (full disk), one warning
// goes to standard error and the program continues.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/concat.h"

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// One line; control characters, which names from user files may contain, become '?'.
void log(LogLevel level, std::string_view message);
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
void log_lines(std::string_view text, LogLevel level = LogLevel::kInfo);
void log_table(std::string_view text, LogLevel level = LogLevel::kInfo);
// Logs fields separated by two spaces. A terminal shows the fields that fit into its width; the file gets all.
void log_fields(std::string_view message);
// Logs the final result of a command, which a quiet console also shows.
void log_result(std::string_view message);

void set_log_level(LogLevel level);

// Restricts standard error to warnings, errors and results, without progress. log.txt still gets everything.
void quiet_console(bool quiet = true);

// Appends every later line to `file` as well. StorageError if it cannot be opened, OutOfMemoryError at the limit on
// open files. Requires: no other thread logs during the call.
void log_to_file(const std::filesystem::path& file);

// Shows `line` at the bottom of a terminal, cut by fit_to_width() (core/terminal.h); an empty line clears it. Does
// nothing if standard error is not a terminal.
void show_progress(std::string_view line);
[[nodiscard]] bool progress_is_shown();  // true if standard error is a terminal and not quiet

}  // namespace sluice
