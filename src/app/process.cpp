#include "app/process.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace sluice::app {

void settle_openmp(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0);
  ::execv("/proc/self/exe", argv);
}

void turn_fatal_writes_into_errors() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace sluice::app
