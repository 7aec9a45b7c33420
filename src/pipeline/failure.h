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

// What to say where memory has run out.
struct MemoryWords {
  std::string_view less_memory = kLessTrainingMemory;  // the advice
  std::string work = {};  // what needed it, after "in ": "forward of conv1, samples [16, 3, 32, 32]"; empty: not known
};

// Must be called inside a catch block, or with a caught exception. LibTorch's own errors keep their first line; running
// out of memory becomes OutOfMemoryError's exit code, its line says what there was and ends in the advice.
[[nodiscard]] Error describe_failure(const std::exception_ptr& failure, const std::string& where,
                                     const MemoryWords& words = {});

// True for what describe_failure() makes of a MemoryLimitError, wherever it has been since: not the system refused, but
// the limit of a CPU device.
[[nodiscard]] bool is_refused_by_limit(const Error& error);

}  // namespace sluice::pipeline
