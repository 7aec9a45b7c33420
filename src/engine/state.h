// state: a composition's parameters, buffers and optimizer state under global layer names. A checkpoint therefore fits
// any number of stages and replicas, and a public model's weights load under their public names. Errors:
// CheckpointError names the tensor, the expected shape and `source`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/compose.h"
#include "storage/checkpoint.h"

namespace sluice::engine {

// From replica 0; views on CPU devices.
[[nodiscard]] storage::TensorMap parameter_tensors(const Composition& composition);
[[nodiscard]] storage::TensorMap buffer_tensors(const Composition& composition);
[[nodiscard]] storage::TensorMap model_tensors(const Composition& composition);  // parameters and buffers
[[nodiscard]] storage::TensorMap gradient_tensors(const Composition& composition);
// "exp_avg/<parameter>", for trained parameters and those that a plan has frozen (Plan::frozen_layers).
[[nodiscard]] storage::TensorMap optimizer_tensors(const Composition& composition);

// Number of optimizer steps that updated a parameter, by name; steps in which it was frozen do not count.
using UpdateCounts = std::map<std::string, std::int64_t>;
// For the parameters in optimizer_tensors().
[[nodiscard]] UpdateCounts update_counts(const Composition& composition);

struct State {
  storage::TensorMap model;
  storage::TensorMap optimizer;
  std::int64_t optimizer_steps = 0;
  UpdateCounts updates = {};  // a parameter without entry was updated in all steps
};

void refuse_not_finite(const storage::TensorMap& tensors, const std::string& source);
// Loads into all replicas. `tensors` must be exactly the model's tensors, all finite.
void load_model(Composition& composition, const storage::TensorMap& tensors, const std::string& source);
// `tensors` must be exactly those of optimizer_tensors(); those of parameters that the model does not train are
// ignored. updates: as in State.
void load_optimizer(Composition& composition, const storage::TensorMap& tensors, std::int64_t steps,
                    const std::string& source, const UpdateCounts& updates = {});

// Copies of the buffers on the devices of the stages, made before a step that may be cut off or skipped.
class BufferSnapshot {
 public:
  enum class Replicas { kAll, kFirst };
  explicit BufferSnapshot(const Composition& composition, Replicas replicas = Replicas::kAll);
  void restore() const;
  void put_into(storage::TensorMap& model) const;

 private:
  struct OfStage {
    int replica = 0;
    std::vector<const nn::Buffer*> buffers;
    at::Tensor statistics;  // floating-point buffers, concatenated; undefined: none
    at::Tensor counts;      // the other buffers
  };
  template <typename Visit>
  static void for_each(const OfStage& stage, Visit visit);

  const Composition& composition_;
  std::vector<OfStage> stages_;
};

}  // namespace sluice::engine
