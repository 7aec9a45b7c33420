// process: what must be settled before LibTorch runs anything in this process.
#pragma once

#include "core/error.h"

namespace sluice::app {

// Sets what the user has not chosen. No log of LibTorch's own (TORCH_CPP_LOG_LEVEL; c10::initLogging() reads it): it
// says in many lines what our errors say in one. A short spin for waiting OpenMP threads (GOMP_SPINCOUNT), which else
// steal the cores of other threads of work: it is read when libraries are loaded, so where it is not set the program
// starts again with it, which loads LibTorch twice (where that fails, it costs speed only). c10d's watchdog over NCCL,
// which would abort the process without a sentence, is off (TORCH_NCCL_ASYNC_ERROR_HANDLING): who is lost is
// comm/liveness.h's matter. NCCL connects all its ways between processes when a communicator is made
// (NCCL_RUNTIME_CONNECT=0): else the first large sum of a step would, and two processes whose stages come in another
// order could wait for each other for ever.
void settle_environment(char** argv);

// From here on a reader of our output that goes away (SIGPIPE) or a file that may not grow (SIGXFSZ) ends nothing: the
// write fails, and is reported or passed over.
void turn_fatal_writes_into_errors();

// Ends the process with the error's line and exit code, from any thread and at once: other threads may hang, so no
// destructor runs. Where torchrun has named a file for it (TORCHELASTIC_ERROR_FILE), the line goes there too.
[[noreturn]] void end_with(const Error& error);

}  // namespace sluice::app
