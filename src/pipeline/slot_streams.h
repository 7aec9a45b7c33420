// slot_streams: the streams of one slot's device: one computes, one copies from the host, and one copies for each
// direction of a border between stages, so that a copy waits only for its data. Sums over replicas have their own
// streams (ddp/local_sum.h). On a CPU device all streams are empty.
#pragma once

#include <array>
#include <cstddef>

#include "device/stream.h"

namespace sluice::pipeline {

enum class Border { kActivations, kGradients };  // by what crosses it; features cross as activations

class SlotStreams {
 public:
  explicit SlotStreams(device::Device device)
      : compute_(device::Stream::make(device)),
        load_(device::Stream::make_beside(device)),
        in_{device::Stream::make_beside(device), device::Stream::make_beside(device)},
        out_{device::Stream::make_beside(device), device::Stream::make_beside(device)} {}

  [[nodiscard]] const device::Stream& compute() const { return compute_; }
  [[nodiscard]] const device::Stream& load() const { return load_; }  // copies from the host
  [[nodiscard]] const device::Stream& in(Border border) const { return in_[static_cast<std::size_t>(border)]; }
  [[nodiscard]] const device::Stream& out(Border border) const { return out_[static_cast<std::size_t>(border)]; }

 private:
  device::Stream compute_;
  device::Stream load_;
  std::array<device::Stream, 2> in_, out_;  // [border]
};

}  // namespace sluice::pipeline
