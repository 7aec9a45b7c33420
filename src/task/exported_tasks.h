// exported_tasks: tasks for models that were exported from PyTorch (src/graph), whose inputs have names of their own.
// Threads: as in task.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "task/task.h"

namespace sluice::task {

// The task with other inputs. is_map: the first output is [n, classes, places...], and becomes [n, places..., classes].
[[nodiscard]] TaskPtr with_inputs(TaskPtr task, std::vector<std::string> inputs, bool is_map = false);

// For a model whose first output is its loss, the mean over as many targets as count() says; targets: names of what it
// takes. There are no scores.
using CountTargets = std::function<std::int64_t(const Tensors& targets)>;
[[nodiscard]] TaskPtr make_own_loss(std::vector<std::string> inputs, std::vector<std::string> targets,
                                    CountTargets count);

}  // namespace sluice::task
