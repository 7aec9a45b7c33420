// layers: the layers of an exported model, one for each section of its program. Parameters and buffers have their names
// of the module's state_dict().
// Threads: as nn::Layer. Errors: ConfigError for what is not supported.
#pragma once

#include <memory>
#include <vector>

#include "graph/archive.h"
#include "graph/sections.h"
#include "nn/layer.h"
#include "nn/registry.h"

namespace sluice::graph {

using ArchivePtr = std::shared_ptr<const Archive>;

// Floating-point type of the export.
[[nodiscard]] at::ScalarType floating_type_of(const Archive& archive);

// Without LayerOptions::draw_weights the parameters are meta tensors; otherwise they have the values of the file.
[[nodiscard]] std::vector<std::unique_ptr<nn::Layer>> make_layers(const ArchivePtr& archive,
                                                                  const nn::LayerOptions& options);

// sections: of Archive::program, cut in another way. The layers evaluate as they train.
[[nodiscard]] std::vector<std::unique_ptr<nn::Layer>> make_layers(const ArchivePtr& archive,
                                                                  const std::vector<Section>& sections,
                                                                  const nn::LayerOptions& options);

}  // namespace sluice::graph
