// slot_streams: the queues of one slot's device: one computes; the others copy beside it, so that a copy waits for
// what it copies alone, and computing for what it needs alone. What comes from the host has one, and each direction of
// a border between stages one on either device: activations and gradients do not queue behind each other. Sums over
// replicas have queues of their own (ddp/local_sum.h). On a CPU device all are empty. Made once with the thread.
// Threads: those of Stream.
#pragma once

#include <array>
#include <cstddef>

#include "device/stream.h"

namespace sluice::pipeline {

enum class Border { kActivations, kGradients };  // what crosses it; features cross as activations

class SlotStreams {
 public:
  explicit SlotStreams(device::Device device)
      : compute_(device::Stream::make(device)),
        load_(device::Stream::make_beside(device)),
        in_{device::Stream::make_beside(device), device::Stream::make_beside(device)},
        out_{device::Stream::make_beside(device), device::Stream::make_beside(device)} {}

  [[nodiscard]] const device::Stream& compute() const { return compute_; }
  [[nodiscard]] const device::Stream& load() const { return load_; }  // from the host
  [[nodiscard]] const device::Stream& in(Border border) const { return in_[static_cast<std::size_t>(border)]; }
  [[nodiscard]] const device::Stream& out(Border border) const { return out_[static_cast<std::size_t>(border)]; }

 private:
  device::Stream compute_;
  device::Stream load_;
  std::array<device::Stream, 2> in_, out_;  // [border]
};

}  // namespace sluice::pipeline
