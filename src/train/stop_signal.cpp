#include "train/stop_signal.h"

#include <unistd.h>

#include <csignal>

namespace sluice::train {
namespace {

volatile std::sig_atomic_t g_received = 0;
struct sigaction g_old_interrupt;
struct sigaction g_old_terminate;

void on_signal(int signal) {
  if (g_received != 0) ::_exit(128 + signal);
  g_received = signal;
}

}  // namespace

StopSignal::StopSignal() {
  g_received = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &g_old_interrupt);
  ::sigaction(SIGTERM, &action, &g_old_terminate);
}

StopSignal::~StopSignal() {
  ::sigaction(SIGINT, &g_old_interrupt, nullptr);
  ::sigaction(SIGTERM, &g_old_terminate, nullptr);
}

bool StopSignal::requested() { return g_received != 0; }
const char* StopSignal::name() { return g_received == SIGTERM ? "SIGTERM" : "SIGINT"; }

}  // namespace sluice::train
