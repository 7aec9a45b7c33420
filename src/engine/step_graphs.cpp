#include "engine/step_graphs.h"

#include <ATen/core/Tensor.h>

namespace sluice::engine {

// Empty if the pass cannot be recorded.
StepGraphs::Shapes StepGraphs::shapes_of(const pipeline::PassRequest& request) {
  if (request.after_gradient) return {};
  Shapes shapes{request.schedule.micro_batches};
  for (const auto& of_replica : request.micro_batches) {
    for (const pipeline::MicroBatch& micro_batch : of_replica) {
      if (micro_batch.samples() == 0) return {};
      for (const nn::Tensors* tensors : {&micro_batch.inputs, &micro_batch.targets}) {
        for (const at::Tensor& tensor : *tensors) {
          shapes.push_back(tensor.defined() ? tensor.dim() : -1);
          if (!tensor.defined()) continue;
          shapes.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
          shapes.insert(shapes.end(), tensor.sizes().begin(), tensor.sizes().end());
        }
      }
    }
  }
  return shapes;
}

std::shared_ptr<pipeline::PassGraphs> StepGraphs::of(const pipeline::Executor& executor,
                                                     const pipeline::PassRequest& request) {
  Shapes shapes = shapes_of(request);
  if (shapes.empty()) return nullptr;
  if (recorded_.graphs && shapes == recorded_.shapes) {
    last_plain_.clear();
    return recorded_.graphs;
  }
  if (shapes != last_plain_) {
    last_plain_ = std::move(shapes);
    return nullptr;
  }
  recorded_ = {};  // frees memory before the new graphs allocate
  recorded_ = {std::move(shapes), executor.make_graphs(make_)};
  return recorded_.graphs;
}

}  // namespace sluice::engine
