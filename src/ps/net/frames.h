// frames: a message in parts. The bytes are shared between tensors and sockets without copies, together with their
// owner. Values. Threads: any. Errors: never throws.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::ps {

struct Frame {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

using Frames = std::vector<Frame>;  // the first one is the header

[[nodiscard]] Frame frame_of(std::string text);
// `flat` must be a contiguous tensor on the CPU that is not written any more.
[[nodiscard]] Frame frame_of(const at::Tensor& flat);
// Returns the frame as that many numbers, or nothing if its length differs. A view if aligned.
[[nodiscard]] std::optional<at::Tensor> tensor_of(const Frame& frame, at::ScalarType dtype, std::int64_t elements);

}  // namespace sluice::ps
