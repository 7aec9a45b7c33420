#include "core/log.h"

#include <poll.h>
#include <spdlog/details/file_helper.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/concat.h"
#include "core/error.h"

namespace sluice {
namespace {

constexpr auto kPattern = "%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %v";
constexpr auto kClearLine = "\r\x1b[K";

// Standard error with at most one progress line below the log lines.
class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  [[nodiscard]] bool is_terminal() const { return is_terminal_; }

  void show_progress(std::string_view line) {
    const std::scoped_lock lock(mutex_);
    if (!is_terminal_) return;
    progress_ = line;
    write(kClearLine);
    write(progress_);
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    if (!progress_.empty()) write(kClearLine);
    write({text.data(), text.size()});
    if (!progress_.empty()) write(progress_);
  }
  void flush_() override { std::fflush(stderr); }

  // A reader that takes nothing any more (a full pipe, Ctrl-S) must not stop the program: after a short wait lines are
  // dropped until it reads again.
  void write(std::string_view text) {
    pollfd console{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&console, 1, stalled_ ? 0 : kPatienceMs) == 0) {
      stalled_ = true;
      return;
    }
    if (std::exchange(stalled_, false)) {
      constexpr std::string_view kNotice = "(lines are missing here: standard error was not read)\n";
      std::fwrite(kNotice.data(), 1, kNotice.size(), stderr);
    }
    std::fwrite(text.data(), 1, text.size(), stderr);
  }

  static constexpr int kPatienceMs = 2000;
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool stalled_ = false;
  std::string progress_;
};

// A file until it fails; from then on nothing.
class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // Throws spdlog_ex when it cannot be opened.
  explicit FileSink(const std::filesystem::path& path) { file_.emplace().open(path.string()); }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    unless_failed([&](auto& file) { file.write(text); });
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
      std::fprintf(stderr, "warning: the log file ends here: %s; the program goes on without it\n", error.what());
      file_.reset();
    }
  }

  std::optional<spdlog::details::file_helper> file_;
};

struct Logging {
  std::shared_ptr<ConsoleSink> console = std::make_shared<ConsoleSink>();
  spdlog::logger logger{"sluice", console};

  Logging() {
    logger.set_pattern(kPattern);
    logger.flush_on(spdlog::level::info);
    logger.set_error_handler([](const std::string& what) {
      std::fprintf(stderr, "warning: a log line could not be written: %s\n", what.c_str());
    });
  }
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

}  // namespace

void log(LogLevel level, std::string_view message) {
  logging().logger.log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

void log_lines(std::string_view text, LogLevel level) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    log(level, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void set_log_level(LogLevel level) { logging().logger.set_level(to_spdlog(level)); }

void log_to_file(const std::filesystem::path& file) {
  try {
    auto sink = std::make_shared<FileSink>(file);
    sink->set_pattern(kPattern);
    logging().logger.sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    throw StorageError(concat("cannot write the log file ", file.string(), ": ", error.what(),
                              "; free space or choose another --run-dir"));
  }
}

void show_progress(std::string_view line) { logging().console->show_progress(line); }
bool progress_is_shown() { return logging().console->is_terminal(); }

}  // namespace sluice
