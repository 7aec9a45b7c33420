// unsent: what a worker of a parameter server has not sent yet when it stops (ps.push_compression leaves something out
// of each push, ps/push_compressor.h): RUN/workers/N.unsent.safetensors, for the next process of that worker in the
// same run. It is taken once: a worker that is killed later has sent some of it, and none of it is to count twice.
// Threads: one. Errors: CheckpointError for a file that is damaged; StorageError where one that was taken cannot be
// removed, or one of another run not be renamed; what cannot be written is a warning.
#pragma once

#include <filesystem>
#include <string>

#include "ps/push_compressor.h"

namespace sluice::train {

struct UnsentOwner {
  std::filesystem::path run_dir;  // of the worker; empty: nothing is kept
  int worker = 0;
  std::string run;  // ps::NetworkLink::run()
};

void save_unsent(const UnsentOwner& owner, const ps::PushCompressor::Named& residuals);
// Empty: there is none, or it stays where it is: that of another run under another name, and where pushes are not
// compressed the file itself.
[[nodiscard]] ps::PushCompressor::Named take_unsent(const UnsentOwner& owner, const ps::Compression& pushes);

}  // namespace sluice::train
