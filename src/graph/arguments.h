// arguments: the tensors of a batch as the forward() of an exported model takes them. Threads: const, any number.
// Errors: DataError for a tensor that is missing or of another type.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "graph/program.h"
#include "nn/layer.h"

namespace sluice::graph {

class Arguments {
 public:
  // from, to: floating-point types of the export and of the model.
  Arguments(const Program& program, at::ScalarType from, at::ScalarType to);

  // given: in the order of forward()'s arguments, the last ones may be missing. A missing mask sees all tokens, missing
  // types are 0, and missing positions count from 0.
  [[nodiscard]] nn::Tensors complete(const nn::Tensors& given) const;

  // One of them, in the type of the program. argument: its position in forward().
  [[nodiscard]] at::Tensor converted(std::size_t argument, const at::Tensor& given) const {
    return in_type(all_.at(argument), given);
  }

 private:
  struct Expected {
    std::string name;
    std::string field;  // usual_field()
    at::ScalarType type = at::kFloat;
    std::size_t dims = 0;
  };
  [[nodiscard]] at::Tensor missing(const Expected& one, const at::Tensor& first) const;
  [[nodiscard]] at::Tensor in_type(const Expected& one, const at::Tensor& given) const;

  std::vector<Expected> all_;
};

// The usual field for an argument of forward(): "mask" for "attention_mask"; empty: none.
[[nodiscard]] std::string usual_field(const std::string& argument);

}  // namespace sluice::graph
