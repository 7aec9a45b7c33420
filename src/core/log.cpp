#include "core/log.h"

#include <poll.h>
#include <spdlog/details/file_helper.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/terminal.h"
#include "core/text.h"

namespace sluice {
namespace {

using spdlog::details::log_msg;

constexpr auto kPattern = "%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %v";
constexpr auto kShortPattern = "%H:%M:%S %v";
constexpr auto kShortPatternWithLevel = "%H:%M:%S %^%l:%$ %v";
constexpr auto kClearLine = "\r\x1b[K";
constexpr auto kRed = "\x1b[31m", kYellow = "\x1b[33m", kNoColour = "\x1b[0m";

// Kind of a message. Each kind has its own logger with this name.
enum class Form { kLine, kTable, kFields, kResult };
constexpr std::array kFormNames{"line", "table", "fields", "result"};

bool has_form(const log_msg& message, Form form) {
  return message.logger_name == spdlog::string_view_t(kFormNames[static_cast<std::size_t>(form)]);
}

std::string text_of(const log_msg& message, spdlog::formatter& formatter) {
  if (has_form(message, Form::kTable)) return concat(std::string(message.payload.data(), message.payload.size()), "\n");
  spdlog::memory_buf_t text;
  formatter.format(message, text);
  return {text.data(), text.size()};
}

class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  ConsoleSink() { set_pattern_(kPattern); }

  [[nodiscard]] bool shows_progress() const { return can_redraw_ && !is_quiet_; }
  void be_quiet(bool quiet) { is_quiet_ = quiet; }

  void show_progress(std::string_view line) {
    const std::scoped_lock lock(mutex_);
    if (!shows_progress()) return;
    progress_ = line;
    write(kClearLine);
    draw_progress();
  }

 private:
  void sink_it_(const log_msg& message) override {
    const bool is_quiet = is_quiet_ && message.level < spdlog::level::warn && !has_form(message, Form::kResult);
    if (is_quiet) return;
    if (!progress_.empty()) write(kClearLine);
    write(is_terminal_ ? text_for_terminal(message) : text_of(message, *formatter_));
    if (!progress_.empty()) draw_progress();
  }
  void flush_() override { std::fflush(stderr); }

  std::string text_for_terminal(const log_msg& message) {
    std::string text = text_of(message, message.level == spdlog::level::info ? short_ : short_with_level_);
    const bool is_coloured = takes_colours_ && message.color_range_end > message.color_range_start;
    if (is_coloured && message.level >= spdlog::level::warn) {
      text.insert(message.color_range_end, kNoColour);
      text.insert(message.color_range_start, message.level == spdlog::level::warn ? kYellow : kRed);
    }
    if (!has_form(message, Form::kFields)) return text;
    text.pop_back();
    return fitted(text) + "\n";
  }

  // Keeps the last column free, because some terminals wrap as soon as it is written.
  static std::string fitted(std::string_view line) { return fit_to_width(line, terminal_columns(STDERR_FILENO) - 1); }
  void draw_progress() { write(fitted(progress_)); }

  // A blocked reader (full pipe, Ctrl-S) must not block the program: after a short wait, lines are dropped.
  void write(std::string_view text) {
    pollfd console{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&console, 1, stalled_ ? 0 : kConsoleTimeoutMs) == 0) {
      stalled_ = true;
      return;
    }
    if (std::exchange(stalled_, false)) {
      constexpr std::string_view kNotice = "(lines are missing here: standard error was not read)\n";
      std::fwrite(kNotice.data(), 1, kNotice.size(), stderr);
    }
    std::fwrite(text.data(), 1, text.size(), stderr);
  }

  static constexpr int kConsoleTimeoutMs = 2000;
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  const bool can_redraw_ = can_redraw(STDERR_FILENO), takes_colours_ = takes_colours(STDERR_FILENO);
  spdlog::pattern_formatter short_{kShortPattern}, short_with_level_{kShortPatternWithLevel};
  bool is_quiet_ = false;
  bool stalled_ = false;
  std::string progress_;
};

class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(const std::filesystem::path& path) {
    file_.emplace().open(path.string());
    set_pattern_(kPattern);
  }

 private:
  void sink_it_(const log_msg& message) override {
    const std::string text = text_of(message, *formatter_);
    spdlog::memory_buf_t buffer;
    buffer.append(text.data(), text.data() + text.size());
    unless_failed([&](auto& file) { file.write(buffer); });
  }
  void flush_() override {
    unless_failed([](auto& file) { file.flush(); });
  }

  template <typename Use>
  void unless_failed(const Use& use) {
    if (!file_) return;
    try {
      use(*file_);
    } catch (const spdlog::spdlog_ex& error) {
      std::fprintf(stderr, "warning: the log file ends here: %s; the program continues without it\n", error.what());
      file_.reset();
    }
  }

  std::optional<spdlog::details::file_helper> file_;
};

struct Logging {
  std::shared_ptr<ConsoleSink> console = std::make_shared<ConsoleSink>();
  std::vector<spdlog::logger> loggers;
  std::vector<std::filesystem::path> files;

  Logging() {
    for (const char* const name : kFormNames) {
      spdlog::logger& logger = loggers.emplace_back(name, console);
      logger.flush_on(spdlog::level::info);
      logger.set_error_handler([](const std::string& what) {
        std::fprintf(stderr, "warning: a log line could not be written: %s\n", what.c_str());
      });
    }
  }

  void write(Form form, LogLevel level, std::string_view message);
};

Logging& logging() {
  static Logging instance;
  return instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

void Logging::write(Form form, LogLevel level, std::string_view message) {
  loggers[static_cast<std::size_t>(form)].log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

void log(LogLevel level, std::string_view message) { logging().write(Form::kLine, level, printable(message)); }
void log_table(std::string_view text, LogLevel level) { logging().write(Form::kTable, level, text); }
void log_fields(std::string_view message) { logging().write(Form::kFields, LogLevel::kInfo, message); }
void log_result(std::string_view message) { logging().write(Form::kResult, LogLevel::kInfo, printable(message)); }

void log_lines(std::string_view text, LogLevel level) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    log(level, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void set_log_level(LogLevel level) {
  for (spdlog::logger& logger : logging().loggers) logger.set_level(to_spdlog(level));
}

void quiet_console(bool quiet) { logging().console->be_quiet(quiet); }

void log_to_file(const std::filesystem::path& file) {
  if (std::ranges::find(logging().files, file) != logging().files.end()) return;
  try {
    const auto sink = std::make_shared<FileSink>(file);
    logging().files.push_back(file);
    for (spdlog::logger& logger : logging().loggers) logger.sinks().push_back(sink);
  } catch (const spdlog::spdlog_ex& error) {
    const int reason = errno;
    const std::string what = concat("cannot write the log file ", file.string(), ": ", error.what());
    if (is_file_limit(reason)) too_many_open_files(what);
    throw StorageError(what, "; free space or choose another --run-dir");
  }
}

void show_progress(std::string_view line) { logging().console->show_progress(line); }
bool progress_is_shown() { return logging().console->shows_progress(); }

}  // namespace sluice
