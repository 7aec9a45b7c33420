#include "train/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <system_error>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/file_descriptor.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX has it in no header

namespace sluice::train {
namespace {

constexpr int kLook_ms = 100;
constexpr std::size_t kMostKept = 64 << 10;  // bytes of what it says

// What tells a process its place among others.
constexpr std::array<std::string_view, 7> kLaunchers{"RANK=",         "WORLD_SIZE=", "LOCAL_", "MASTER_",
                                                     "TORCHELASTIC_", "OMPI_",       "SLURM_"};

std::vector<char*> environment_of_one() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (std::ranges::none_of(kLaunchers, [&](std::string_view start) { return text.starts_with(start); }))
      kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

pid_t start(const std::vector<std::string>& words, int said) {
  std::vector<std::string> copies{"sluice"};
  copies.insert(copies.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment = environment_of_one();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw PeerError(concat("cannot start another process: ", std::generic_category().message(error),
                           "; raise the limit on processes (ulimit -u) or free memory"));
  return child;
}

// Reads until the other end is closed or the time is over; false: it is over.
bool listen(int said, double limit_s, std::string& text) {
  const Nanoseconds begin = now_ns();
  std::array<char, 4096> part{};
  while (to_s(now_ns() - begin) < limit_s) {
    pollfd ready{.fd = said, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kLook_ms) <= 0) continue;
    const ssize_t count = ::read(said, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(part.data(), static_cast<std::size_t>(count));
    if (text.size() > 2 * kMostKept) text.erase(0, text.size() - kMostKept);
  }
  return false;
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& words, double limit_s) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw PeerError("cannot make a pipe to another process; raise the limit on open files (ulimit -n)");
  const FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1]);
  const pid_t child = start(words, theirs.get());
  theirs.reset();
  std::string text;
  ChildEnd end{.timed_out = !listen(ours.get(), limit_s, text)};
  if (end.timed_out) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.last_words = last_line(std::move(text));
  return end;
}

}  // namespace sluice::train
