// paused_process: runs something in a process of its own that is stopped for a while (SIGSTOP, SIGCONT), as Ctrl-Z or a
// debugger does.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "core/own_time.h"

namespace sluice::test {

// body() in a copy of this process that is stopped after `before` for as long as `pause`. Its result, an exit code; 99
// when it has not ended within a minute. Requires: no other thread of this process holds a lock.
[[nodiscard]] inline int run_and_pause(std::chrono::milliseconds before, std::chrono::milliseconds pause,
                                       const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  std::this_thread::sleep_for(before);
  ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(pause);
  ::kill(child, SIGCONT);
  constexpr int kTries = 6000;
  int status = 0;
  for (int tries = 0; tries < kTries; ++tries) {
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return 99;
}

// Returns when this process has run for so long, whatever time it was stopped meanwhile.
inline void run_for(std::chrono::milliseconds time) {
  OwnTime own(std::chrono::milliseconds(400));
  while (own.pass() < time) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace sluice::test
