// task: what a model is trained for: which fields of a batch the model and the loss take, the loss, and the scores.
// Loss and scores are sums over the targets. Micro-batches, replicas and processes may have different numbers of
// targets, and every target weighs the same. Threads: any; a task has no state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/scores.h"
#include "nn/cross_entropy.h"
#include "nn/layer.h"

namespace sluice::task {

using nn::kNoTarget;
using nn::Tensors;

class Task {
 public:
  virtual ~Task() = default;

  // Names of fields, in the order in which the first layer and the loss take them.
  [[nodiscard]] virtual const std::vector<std::string>& inputs() const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& targets() const = 0;

  // outputs: of the last layer, on any device; targets: on the same device. Returns a scalar.
  [[nodiscard]] virtual at::Tensor loss(const Tensors& outputs, const Tensors& targets) const = 0;
  [[nodiscard]] virtual std::int64_t count_targets(const Tensors& targets) const = 0;

  // The scores' sums over a micro-batch, on the outputs' device, for sums_of(); the call does not wait.
  [[nodiscard]] virtual at::Tensor count(const Tensors& outputs, const Tensors& targets) const = 0;
  // False if scores are too expensive to count in every step, as for each token of a large vocabulary. Steps that are
  // not logged then have no scores.
  [[nodiscard]] virtual bool counts_every_step() const { return true; }
  [[nodiscard]] virtual std::vector<double> sums_of(const at::Tensor& counted) const = 0;
  [[nodiscard]] virtual const Scores& scores() const = 0;

  // Zeros, for a process without samples.
  [[nodiscard]] std::vector<double> no_sums() const { return std::vector<double>(number_of_sums()); }

 protected:
  [[nodiscard]] virtual std::size_t number_of_sums() const = 0;
};

using TaskPtr = std::shared_ptr<const Task>;

// Cross-entropy of classes, with label smoothing as in PyTorch, and the targets with the largest logit ("top1") or one
// of the five largest ("top5"; all if there are fewer classes). Outputs: logits [n, classes] or [n, T, classes];
// targets: a class per sample [n] or per position [n, T], or probabilities [n, classes], the largest of which is the
// class to predict. Among equal logits the lower class comes first, so that a constant output is not counted as right.
[[nodiscard]] TaskPtr make_classification(double label_smoothing = 0);
// The same for tokens, where the target is the next one, with the perplexity, unless labels are smoothed.
[[nodiscard]] TaskPtr make_language_model(double label_smoothing = 0);

}  // namespace sluice::task
