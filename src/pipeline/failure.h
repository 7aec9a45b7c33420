// failure: turns whatever a stage's thread threw into one Error that says where it happened.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "core/error.h"

namespace sluice::pipeline {

// What to do about too little memory, as the end of a sentence.
inline constexpr std::string_view kLessTrainingMemory =
    "use more pipeline.chunks, more pipeline.stages or a smaller train.global_batch";
inline constexpr std::string_view kLessEvaluationMemory = "use a smaller train.eval_batch or more pipeline.stages";

// Must be called inside a catch block, or with a caught exception. LibTorch's own errors keep their first line; running
// out of memory becomes OutOfMemoryError's exit code, its line says what there was and ends in `less_memory`.
[[nodiscard]] Error describe_failure(const std::exception_ptr& failure, const std::string& where,
                                     std::string_view less_memory = kLessTrainingMemory);

// True for what describe_failure() makes of a MemoryLimitError, wherever it has been since: not the system refused, but
// the limit of a CPU device.
[[nodiscard]] bool is_refused_by_limit(const Error& error);

}  // namespace sluice::pipeline
