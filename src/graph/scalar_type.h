// scalar_type: the element type that a number of torch.export's schema stands for. ConfigError for others.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace sluice::graph {

// where: for the message.
[[nodiscard]] at::ScalarType scalar_type(int number, const std::string& where);

}  // namespace sluice::graph
