// frames: a message in parts: bytes that nobody copies on their way between tensors and sockets, and what keeps them
// alive. Values; threads: any. Errors: none.
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

using Frames = std::vector<Frame>;  // the first one is the message's header

[[nodiscard]] Frame frame_of(std::string text);
// Of a flat tensor on the CPU without gaps, which is not to be written any more.
[[nodiscard]] Frame frame_of(const at::Tensor& flat);
// So many numbers; nothing where the frame has another length. A view of the frame where its bytes lie as numbers must.
[[nodiscard]] std::optional<at::Tensor> tensor_of(const Frame& frame, at::ScalarType dtype, std::int64_t elements);

}  // namespace sluice::ps
