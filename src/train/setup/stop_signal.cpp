#include "train/setup/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <limits>
#include <string_view>

#include "core/clock.h"

namespace sluice::train {
namespace {

using Disposition = struct sigaction;

constexpr Nanoseconds kRepeat = 1'000'000'000;
constexpr std::array kStopping{SIGINT, SIGTERM, SIGHUP};

std::atomic<int> g_received = 0;
std::atomic<Nanoseconds> g_received_ns = std::numeric_limits<Nanoseconds>::max() / 2;  // until a signal arrives
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler uses it");
std::array<Disposition, kStopping.size()> g_old_dispositions;

Nanoseconds monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

void on_signal(int signal) {
  const Nanoseconds now = monotonic_ns();
  int none = 0;
  if (g_received.compare_exchange_strong(none, signal)) {
    g_received_ns = now;
  } else if (now - g_received_ns > kRepeat) {
    constexpr std::string_view kLine = "\nsluice: stopped at once by a second signal, without saving\n";
    if (::write(STDERR_FILENO, kLine.data(), kLine.size()) < 0) {
      // the message is lost, but the process still ends
    }
    ::_exit(128 + signal);
  }
}

}  // namespace

StopSignal::StopSignal(Afterwards afterwards) : afterwards_(afterwards) {
  g_received_ns = std::numeric_limits<Nanoseconds>::max() / 2;
  g_received = 0;
  Disposition stop{};
  stop.sa_handler = on_signal;
  stop.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kStopping.size(); ++i) {
    ::sigaction(kStopping[i], &stop, &g_old_dispositions[i]);
    const bool under_nohup = kStopping[i] == SIGHUP && g_old_dispositions[i].sa_handler == SIG_IGN;
    if (under_nohup) ::sigaction(SIGHUP, &g_old_dispositions[i], nullptr);
  }
}

StopSignal::~StopSignal() {
  Disposition ignore{};
  ignore.sa_handler = SIG_IGN;
  const bool ignores = afterwards_ == Afterwards::kIgnored;
  for (std::size_t i = 0; i < kStopping.size(); ++i)
    ::sigaction(kStopping[i], ignores ? &ignore : &g_old_dispositions[i], nullptr);
  g_received = 0;
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
