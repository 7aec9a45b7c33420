// state: a composition's parameters, buffers and optimizer state under global layer names, so that a checkpoint fits
// any number of stages and replicas, and a public model's weights load under their public names. Not here: files
// (storage/), the position in the data (train/run/loop.h). Errors: CheckpointError names the tensor, what it should be,
// and `source`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/compose.h"
#include "storage/checkpoint.h"

namespace sluice::engine {

// Of replica 0; views on CPU devices.
[[nodiscard]] storage::TensorMap parameter_tensors(const Composition& composition);
[[nodiscard]] storage::TensorMap buffer_tensors(const Composition& composition);
[[nodiscard]] storage::TensorMap model_tensors(const Composition& composition);  // both
// Of what is trained, by the name of the parameter.
[[nodiscard]] storage::TensorMap gradient_tensors(const Composition& composition);
// "exp_avg/<parameter>", of what is trained and of what a plan has frozen (Plan::frozen_layers).
[[nodiscard]] storage::TensorMap optimizer_tensors(const Composition& composition);

// In how many of the optimizer's steps a parameter was updated, by its name; not in those in which it was frozen.
using UpdateCounts = std::map<std::string, std::int64_t>;
// Update counts of the parameters in optimizer_tensors().
[[nodiscard]] UpdateCounts update_counts(const Composition& composition);

// Parameters, buffers and optimizer state, apart from any composition.
struct State {
  storage::TensorMap model;
  storage::TensorMap optimizer;
  std::int64_t optimizer_steps = 0;
  UpdateCounts updates = {};  // a parameter that is not in it was updated in all steps
};

// Tensors of a file that are to be loaded.
void refuse_not_finite(const storage::TensorMap& tensors, const std::string& source);
// Exactly the model's tensors, no more and no fewer, all of them finite; into all replicas.
void load_model(Composition& composition, const storage::TensorMap& tensors, const std::string& source);
// Exactly the tensors of optimizer_tensors(); those of parameters that the model itself does not train are left out.
// updates: as State has them.
void load_optimizer(Composition& composition, const storage::TensorMap& tensors, std::int64_t steps,
                    const std::string& source, const UpdateCounts& updates = {});

// Copies of the buffers, on the devices of the stages, before a step that may be cut off or skipped changes them.
class BufferSnapshot {
 public:
  enum class Replicas { kAll, kFirst };
  // The composition must outlive it.
  explicit BufferSnapshot(const Composition& composition, Replicas replicas = Replicas::kAll);
  // Puts all copies back.
  void restore() const;
  // Replaces the buffers in `model` by the copies of the first replica.
  void put_into(storage::TensorMap& model) const;

 private:
  struct OfStage {
    int replica = 0;
    std::vector<const nn::Buffer*> buffers;
    at::Tensor statistics;  // those of floating point, one after the other; undefined: there is none
    at::Tensor counts;      // the others
  };
  template <typename Visit>
  static void for_each(const OfStage& stage, Visit visit);

  const Composition& composition_;
  std::vector<OfStage> stages_;
};

}  // namespace sluice::engine
