// process: what must be settled before LibTorch runs anything in this process.
#pragma once

namespace sluice::app {

// OpenMP reads its waiting policy once, when it is loaded. Unless the user has chosen one, starts the program again
// with a short spin (GOMP_SPINCOUNT), which keeps waiting OpenMP threads from stealing the cores of other threads of
// work. Returns when nothing has to change (or the restart fails, which only costs speed).
void settle_openmp(char** argv);

}  // namespace sluice::app
