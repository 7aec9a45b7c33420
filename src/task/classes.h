// classes: cross-entropy of classes and top-1 hits, for the tasks of this folder.
#pragma once

#include <string>
#include <vector>

#include "task/task.h"

namespace sluice::task {

struct ClassesOptions {
  double label_smoothing = 0;
  std::vector<std::string> inputs{"inputs"};
  bool predicts_tokens = false;  // adds perplexity (without smoothing); scores are counted only in logged steps
  bool has_top5 = true;
};

[[nodiscard]] TaskPtr make_classes(const ClassesOptions& options);

// The share of the targets that sums[sum] counts.
[[nodiscard]] Score share_of_targets(const char* name, const char* title, const char* tag, std::size_t sum);

}  // namespace sluice::task
