#include "train/study/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "comm/launcher.h"
#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/own_time.h"
#include "storage/files.h"
#include "train/setup/stop_signal.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it in no header

namespace sluice::train {
namespace {

constexpr int kLook_ms = 100;
constexpr std::size_t kMostKept = 64 << 10;  // bytes of its standard error

std::vector<char*> environment_of_one() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (std::ranges::none_of(comm::launcher_prefixes(),
                             [&](std::string_view start) { return text.starts_with(start); }))
      kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

// Runs between fork and exec, where only async-signal-safe calls are allowed.
[[noreturn]] void become(char* const* arguments, char* const* environment, int output, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(EXIT_FAILURE);  // the parent ended before prctl()
  const int none = ::open("/dev/null", O_RDWR);
  ::dup2(none, STDIN_FILENO);
  ::dup2(none, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (none > STDERR_FILENO) ::close(none);
  ::execve("/proc/self/exe", arguments, environment);
  ::_exit(EXIT_FAILURE);
}

pid_t start(const std::vector<std::string>& words, int output) {
  std::vector<std::string> copies{"sluice"};
  copies.insert(copies.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment = environment_of_one();
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) become(arguments.data(), environment.data(), output, parent);
  if (child < 0)
    throw PeerError("cannot start another process: ", std::generic_category().message(errno),
                    "; raise the limit on processes (ulimit -u) or free memory");
  return child;
}

enum class ListenEnd : std::uint8_t { kAll, kTimeIsOver, kStop };

ListenEnd listen(int output, double limit_s, std::string& text) {
  std::array<char, 4096> part{};
  for (const OwnClock clock; to_s(clock.now()) < limit_s;) {
    if (StopSignal::requested()) return ListenEnd::kStop;
    pollfd ready{.fd = output, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kLook_ms) <= 0) continue;
    const ssize_t count = ::read(output, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return ListenEnd::kAll;
    text.append(part.data(), static_cast<std::size_t>(count));
    if (text.size() > 2 * kMostKept) text.erase(0, text.size() - kMostKept);
  }
  return ListenEnd::kTimeIsOver;
}

// "2026-11-26 15:22:14.389 error   no room" -> "no room"
std::string without_date_and_level(const std::string& line) {
  constexpr std::string_view kDate = "dddd-dd-dd dd:dd:dd.ddd ";
  const auto is_of_date = [](char c, char form) { return form == 'd' ? c >= '0' && c <= '9' : c == form; };
  if (line.size() <= kDate.size() || !std::ranges::equal(line.substr(0, kDate.size()), kDate, is_of_date)) return line;
  const std::size_t level_end = line.find(' ', kDate.size());
  const std::size_t words = line.find_first_not_of(' ', level_end);
  return words == std::string::npos ? line : line.substr(words);
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return without_date_and_level(text.substr(text.rfind('\n') + 1));
}

void describe_signal(int signal, ChildEnd& end) {
  const bool asks = signal == SIGINT || signal == SIGTERM || signal == SIGHUP, kills = signal == SIGKILL;
  const ExitCode code = kills ? ExitCode::kOutOfMemory : asks ? ExitCode::kInterrupted : ExitCode::kBug;
  end.exit_code = static_cast<int>(code);
  const std::string output =
      std::exchange(end.last_words, concat("signal ", signal, " (", ::strsignal(signal), ") ended its process"));
  if (kills)
    end.last_words += ", which the kernel sends when memory runs out; free memory, or use a smaller train.global_batch";
  if (code == ExitCode::kBug) end.last_words += concat("; please report it with its last output: ", output);
}

int status_of_ended(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& words, double limit_s) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) too_many_open_files("cannot make a pipe to another process");
  const FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1]);
  const StopSignal stop;
  const pid_t child = start(words, theirs.get());
  theirs.reset();
  std::string text;
  const ListenEnd end_of_output = listen(ours.get(), limit_s, text);
  if (end_of_output != ListenEnd::kAll) ::kill(child, SIGKILL);
  const int status = status_of_ended(child);
  if (StopSignal::requested())
    throw InterruptedError("stopped by ", StopSignal::name(), " before it was complete; nothing was written");
  ChildEnd end{.exit_code = WEXITSTATUS(status),
               .timed_out = end_of_output == ListenEnd::kTimeIsOver,
               .last_words = last_line(std::move(text))};
  if (WIFSIGNALED(status) && !end.timed_out) describe_signal(WTERMSIG(status), end);
  return end;
}

ChildEnd train_in_child(const config::Config& config, const std::filesystem::path& run_dir, double limit_s) {
  const std::string file = run_dir.string() + ".toml";
  storage::write_text_atomically(file, config::to_toml(config));
  return run_child({"--quiet", "train", file, "--run-dir", run_dir.string()}, limit_s);
}

}  // namespace sluice::train
