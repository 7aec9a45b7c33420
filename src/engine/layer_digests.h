// layer_digests: digests of what each layer computes in one step, to find the first difference between two runs:
// outputs and gradients by micro-batch, summed gradients, and what the step leaves behind. Needs sums in the order of a
// tree (TrainStepOptions::micro_batch). Threads: on_outputs() and on_gradient() from any, the rest from one.
// Errors: PeerError of on_sums().
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/compose.h"
#include "pipeline/pass_watch.h"

namespace sluice::engine {

struct NamedDigests {
  std::string name;                  // of a layer, parameter or buffer
  std::vector<std::string> digests;  // 16 hexadecimal digits each; one, or one for each micro-batch of the step
};

// In the order of the model.
struct StepDigests {
  std::vector<NamedDigests> forward;   // [layer]
  std::vector<NamedDigests> backward;  // [parameter]: gradient of each micro-batch
  std::vector<NamedDigests> sum;       // [parameter]: gradient of the step
  std::vector<NamedDigests> update;    // [parameter]: value after the step
  std::vector<NamedDigests> buffers;   // [buffer]: value after the step
};

class LayerDigests final : public pipeline::PassWatch {
 public:
  LayerDigests(const Composition& composition, std::int64_t micro_batches);

  void on_outputs(std::int64_t micro_batch, const std::string& layer, const nn::Tensors& outputs) override;
  void on_gradient(std::int64_t micro_batch, const std::string& parameter, const at::Tensor& gradient) override;
  // Call when gradients are summed. Every process must call it.
  void on_sums();
  // Call after the update, in any process.
  [[nodiscard]] StepDigests finish() const;

 private:
  void set(std::int64_t micro_batch, std::size_t column, const std::string& digest);
  [[nodiscard]] NamedDigests column(const std::string& name, std::size_t column) const;

  const Composition& composition_;
  std::vector<std::string> layers_, parameters_;
  std::map<std::string, std::size_t> column_of_layer_, column_of_parameter_;
  std::mutex mutex_;
  at::Tensor by_micro_batch_;  // [micro-batch, layers and parameters] int64; guarded by mutex_ during the pass
  std::vector<NamedDigests> sums_;
};

}  // namespace sluice::engine
