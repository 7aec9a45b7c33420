// process: what must be settled before LibTorch runs anything in this process.
#pragma once

#include "core/error.h"

namespace sluice::app {

// Some of the environment is read once, when libraries are loaded. Unless the user has chosen, starts the program again
// with a short spin for waiting OpenMP threads (GOMP_SPINCOUNT), which else steal the cores of other threads of work,
// and without LibTorch's own log (TORCH_CPP_LOG_LEVEL), which says in many lines what our errors say in one. Returns
// when nothing has to change (or the restart fails, which costs speed and lines). c10d's watchdog over NCCL, which
// would abort the process without a sentence, is off (TORCH_NCCL_ASYNC_ERROR_HANDLING): who is lost is
// comm/liveness.h's matter.
void settle_environment(char** argv);

// From here on a reader of our output that goes away (SIGPIPE) or a file that may not grow (SIGXFSZ) ends nothing: the
// write fails, and is reported or passed over.
void turn_fatal_writes_into_errors();

// Ends the process with the error's line and exit code, from any thread and at once: other threads may hang, so no
// destructor runs. Where torchrun has named a file for it (TORCHELASTIC_ERROR_FILE), the line goes there too.
[[noreturn]] void end_with(const Error& error);

}  // namespace sluice::app
