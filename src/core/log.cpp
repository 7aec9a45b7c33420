#include "core/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

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

  static void write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::string progress_;
};

struct Logging {
  std::shared_ptr<ConsoleSink> console = std::make_shared<ConsoleSink>();
  spdlog::logger logger{"sluice", console};

  Logging() {
    logger.set_pattern(kPattern);
    logger.flush_on(spdlog::level::info);
    logger.set_error_handler([](const std::string& what) {
      std::fprintf(stderr, "warning: a log line could not be written to the log file: %s\n", what.c_str());
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

void set_log_level(LogLevel level) { logging().logger.set_level(to_spdlog(level)); }

void log_to_file(const std::filesystem::path& file) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
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
