// process: what must be settled before LibTorch runs anything in this process.
#pragma once

namespace sluice::app {

// OpenMP reads its waiting policy once, when it is loaded. Unless the user has chosen one, starts the program again
// with a short spin (GOMP_SPINCOUNT), which keeps waiting OpenMP threads from stealing the cores of other threads of
// work. Returns when nothing has to change (or the restart fails, which only costs speed).
void settle_openmp(char** argv);

// From here on a reader of our output that goes away (SIGPIPE) or a file that may not grow (SIGXFSZ) ends nothing: the
// write fails, and is reported or passed over.
void turn_fatal_writes_into_errors();

}  // namespace sluice::app
