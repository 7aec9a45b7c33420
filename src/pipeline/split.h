// split: splits a model's ordered layers into stages. Errors: ConfigError if the partition does not fit the model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/plan.h"
#include "nn/layer.h"

namespace sluice::pipeline {

using LayerList = std::vector<std::unique_ptr<nn::Layer>>;

void check_partition(const Partition& partition, int layers, const std::string& model);

[[nodiscard]] std::vector<LayerList> split(LayerList layers, const Partition& partition, const std::string& model);

}  // namespace sluice::pipeline
