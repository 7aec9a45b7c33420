#include "ps/net/frames.h"

#include <cstdint>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::ps {

Frame frame_of(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const std::string_view bytes = *owner;
  return {bytes, std::move(owner)};
}

Frame frame_of(const at::Tensor& flat) {
  check(flat.is_cpu() && flat.is_contiguous(), "a contiguous tensor on the CPU");
  return {{static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()}, std::make_shared<const at::Tensor>(flat)};
}

std::optional<at::Tensor> tensor_of(const Frame& frame, at::ScalarType dtype, std::int64_t elements) {
  const std::size_t size = c10::elementSize(dtype);
  if (elements < 0 || frame.bytes.size() != static_cast<std::size_t>(elements) * size) return std::nullopt;
  if (elements == 0) return at::empty({0}, dtype);
  // This object is the only owner of a received message's bytes.
  auto* const bytes = const_cast<char*>(frame.bytes.data());
  const at::Tensor view = at::from_blob(
      bytes, {elements}, [owner = frame.owner](void*) {}, dtype);
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes) % size == 0;
  return is_aligned ? view : view.clone();
}

}  // namespace sluice::ps
