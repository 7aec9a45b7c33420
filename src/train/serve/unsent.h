// unsent: the compression residual of a stopped worker (ps/push_compressor.h), for its next process in the same run:
// RUN/workers/N.unsent.safetensors. It is used once: after a kill, part of it has been sent and must not count twice.
// Threads: one. Errors: CheckpointError for a damaged file; StorageError if a used file cannot be removed, or the
// file of another run cannot be renamed. A failed write gives a warning.
#pragma once

#include <filesystem>
#include <string>

#include "ps/push_compressor.h"

namespace sluice::train {

struct UnsentOwner {
  std::filesystem::path run_dir;  // the worker's; empty: keep nothing
  int worker = 0;
  std::string run;
};

void save_unsent(const UnsentOwner& owner, const ps::PushCompressor::Named& residuals);
// Empty if there is no file, or if it cannot be used. Another run's file is renamed; without compression it stays.
[[nodiscard]] ps::PushCompressor::Named take_unsent(const UnsentOwner& owner, const ps::Compression& pushes);

}  // namespace sluice::train
