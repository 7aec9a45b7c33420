#include "app/process.h"

#include <unistd.h>

#include <cstdlib>

namespace sluice::app {

void settle_openmp(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0);
  ::execv("/proc/self/exe", argv);
}

}  // namespace sluice::app
