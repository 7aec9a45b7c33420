// kept_features: a FeatureSource that keeps each row in a map and forgets nothing, for tests of passes.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "pipeline/feature_source.h"

namespace sluice::engine::test {

class KeptFeatures final : public pipeline::FeatureSource {
 public:
  [[nodiscard]] Found find(const pipeline::MicroBatch& samples) override {
    const std::lock_guard lock(mutex_);
    Found found;
    std::vector<at::Tensor> inputs;
    at::Tensor rows;
    for (std::int64_t i = 0; i < samples.samples(); ++i) {
      const auto known = rows_.find(key_of(samples, i));
      if (known == rows_.end()) {
        found.missing.push_back(i);
        inputs.push_back(samples.inputs[0][i]);
        continue;
      }
      if (!rows.defined()) {
        auto sizes = known->second.sizes().vec();
        sizes.insert(sizes.begin(), samples.samples());
        rows = at::empty(sizes, known->second.options());
      }
      rows[i].copy_(known->second);
      ++hits;
    }
    if (rows.defined()) found.rows = {rows};
    if (!inputs.empty()) found.inputs = {at::stack(inputs)};
    return found;
  }

  [[nodiscard]] nn::Tensors complete(const pipeline::MicroBatch& samples, const Found& found,
                                     const pipeline::FrozenPrefix::Features& features) override {
    const at::Tensor& made = features.tensors.front();
    const std::lock_guard lock(mutex_);
    for (std::size_t m = 0; m < found.missing.size(); ++m)
      rows_[key_of(samples, found.missing[m])] = made[static_cast<std::int64_t>(m)].clone();
    if (found.rows.empty()) return {made};
    return {at::Tensor(found.rows[0]).index_copy_(0, at::tensor(found.missing), made)};
  }

  void follow(const pipeline::FrozenPrefix* prefix) override { followed.push_back(prefix); }

  // As a loader leaves out what is kept.
  [[nodiscard]] pipeline::MicroBatch without_known_inputs(pipeline::MicroBatch batch) const {
    batch.inputs[0] = batch.inputs[0].clone();
    for (std::int64_t i = 0; i < batch.samples(); ++i) {
      batch.without_inputs.push_back(rows_.contains(key_of(batch, i)));
      if (batch.without_inputs.back()) batch.inputs[0][i].fill_(std::numeric_limits<double>::quiet_NaN());
    }
    return batch;
  }

  int hits = 0;
  std::vector<const pipeline::FrozenPrefix*> followed;

 private:
  using Key = std::pair<std::int64_t, int>;
  static Key key_of(const pipeline::MicroBatch& samples, std::int64_t i) {
    return {samples.sample_ids[i].item<std::int64_t>(), samples.view};
  }
  std::mutex mutex_;
  std::map<Key, at::Tensor> rows_;
};

}  // namespace sluice::engine::test
