// push_assembly: assembles the shards of a push that are sent ahead span by span while backward runs (PushAhead). It
// holds one step; a span of another step starts a new one. A repeated span changes nothing. An inconsistent span
// discards all spans, so that the worker is asked for them again.
// Threads: the owner's. Errors: never throws.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/layout.h"
#include "ps/net/frames.h"
#include "ps/net/messages.h"

namespace sluice::ps {

class PushAssembly {
 public:
  // Copies the elements after the header. Returns false if they do not fit a push of that shape.
  [[nodiscard]] bool take(const PushAhead& ahead, const Frames& frames, const TensorsShape& shape);
  // Returns the shards of that push if all elements have arrived. Either way all its spans are dropped.
  [[nodiscard]] std::optional<std::vector<at::Tensor>> finish(const PushKey& push, const TensorsShape& shape);

 private:
  struct Part {
    at::Tensor shard;
    std::map<std::int64_t, std::int64_t> spans;  // received ranges, begin to end, merged if adjacent
    std::int64_t elements = 0;
  };

  void begin(const TensorsShape& shape);
  [[nodiscard]] static bool add(Part& part, const ShardSpan& span, const at::Tensor& elements);

  PushKey push_;
  std::int64_t lease_ = kNone;
  std::vector<Part> parts_;  // [shard]; empty: nothing has arrived
};

}  // namespace sluice::ps
