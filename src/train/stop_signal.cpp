#include "train/stop_signal.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

namespace sluice::train {
namespace {

using Action = struct sigaction;

constexpr std::array kStopping{SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t g_received = 0;
std::array<Action, kStopping.size()> g_old_actions;
Action g_old_pipe_action;

void on_signal(int signal) {
  if (g_received != 0) {
    constexpr std::string_view kLine = "\nsluice: stopped at once by a second signal, without saving\n";
    if (::write(STDERR_FILENO, kLine.data(), kLine.size()) < 0) {
      // there is nobody left to tell
    }
    ::_exit(128 + signal);
  }
  g_received = signal;
}

}  // namespace

StopSignal::StopSignal() {
  g_received = 0;
  Action stop{};
  stop.sa_handler = on_signal;
  stop.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kStopping.size(); ++i) {
    ::sigaction(kStopping[i], &stop, &g_old_actions[i]);
    const bool under_nohup = kStopping[i] == SIGHUP && g_old_actions[i].sa_handler == SIG_IGN;
    if (under_nohup) ::sigaction(SIGHUP, &g_old_actions[i], nullptr);
  }
  Action ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &g_old_pipe_action);
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kStopping.size(); ++i) ::sigaction(kStopping[i], &g_old_actions[i], nullptr);
  ::sigaction(SIGPIPE, &g_old_pipe_action, nullptr);
}

bool StopSignal::requested() { return g_received != 0; }

const char* StopSignal::name() {
  switch (g_received) {
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    default: return "SIGINT";
  }
}

}  // namespace sluice::train
