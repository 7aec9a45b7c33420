// process: what must be settled before LibTorch runs anything in this process.
//
// The first part runs before main() and before the initialisers of the libraries, which take 0.3 s:
// - Standard descriptors that are closed are opened on /dev/null. Otherwise the next file or socket would get one of
//   their numbers, and log lines would be written into it.
// - The soft limits on open files and on stacks are raised as far as the hard ones allow; threads get stacks of 8 MiB.
//   A stack on which LibTorch cannot even be initialised is an error.
// - If GOMP_SPINCOUNT is not set the program starts again with it. OpenMP reads it when it is loaded; by default its
//   threads spin for long, which steals the cores of other threads. The stop signals stay blocked meanwhile.
// - `train`, `serve`, `tune` and `memory` end with 130 when a stop signal comes before their own handlers are installed
//   (train/setup/stop_signal.h). Other commands end by the signal itself.
//
// This module also defines pthread_create(): OpenMP and ZeroMQ end the process in their own way if the system gives no
// more threads, so here it is ended with an error's line and exit code.
#pragma once

#include "core/error.h"

namespace sluice::app {

// Sets what the user has not chosen:
// - TORCH_CPP_LOG_LEVEL: no log of LibTorch's own, which says in many lines what our errors say in one.
//   c10::initLogging() reads it.
// - TORCH_NCCL_ASYNC_ERROR_HANDLING: c10d's watchdog over NCCL is off. It would abort the process without a sentence;
//   comm/liveness.h finds lost processes.
// - NCCL_RUNTIME_CONNECT=0: NCCL connects all its ways between processes when a communicator is made. Otherwise the
//   first large sum of a step connects them. Two processes whose stages come in another order could then wait for each
//   other for ever.
void settle_environment();

// From here on a reader of our output that goes away (SIGPIPE) or a file that may not grow (SIGXFSZ) ends nothing: the
// write fails, and is reported or passed over.
void turn_fatal_writes_into_errors();

// Ends the process with the error's line and exit code, from any thread and at once: other threads may hang, so no
// destructor runs. Where torchrun has named a file for it (TORCHELASTIC_ERROR_FILE), the line goes there too.
[[noreturn]] void end_with(const Error& error);

}  // namespace sluice::app
