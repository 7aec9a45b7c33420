// failure: converts any exception of a stage's thread into one Error that says where it happened.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "core/error.h"

namespace sluice::pipeline {

// Advice for out of memory, as the end of a sentence.
inline constexpr std::string_view kLessTrainingMemory =
    "use more pipeline.chunks, more pipeline.stages or a smaller train.global_batch";
inline constexpr std::string_view kLessEvaluationMemory = "use a smaller train.eval_batch or more pipeline.stages";

struct MemoryWords {
  std::string_view less_memory = kLessTrainingMemory;
  // What ran out of memory, printed after "in ", for example "forward of conv1, samples [16, 3, 32, 32]"; empty:
  // unknown.
  std::string work = {};
};

// Requires: a caught exception. A LibTorch error keeps its first line. Out of memory becomes an Error with
// OutOfMemoryError's exit code that says what memory there was and ends in the advice.
[[nodiscard]] Error describe_failure(const std::exception_ptr& failure, const std::string& where,
                                     const MemoryWords& words = {});

// True if the limit of a CPU device refused memory (MemoryLimitError), and not the system.
[[nodiscard]] bool is_refused_by_limit(const Error& error);

}  // namespace sluice::pipeline
