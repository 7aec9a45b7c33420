// unsent: what a worker of a parameter server has not sent yet when it stops (ps.push_compression leaves something out
// of each push, ps/push_compressor.h): RUN/workers/N.unsent.safetensors, for the next process of that worker. It is
// taken once: a worker that is killed later has sent some of it, and none of it is to count twice.
// Threads: one. Errors: CheckpointError of a file that is damaged; what cannot be written is a warning.
#pragma once

#include <filesystem>

#include "ps/push_compressor.h"

namespace sluice::train {

void save_unsent(const std::filesystem::path& run_dir, int worker, const ps::PushCompressor::Named& residuals);
// Empty: there is none.
[[nodiscard]] ps::PushCompressor::Named take_unsent(const std::filesystem::path& run_dir, int worker);

}  // namespace sluice::train
