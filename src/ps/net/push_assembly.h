// push_assembly: the shards of a push that came ahead of it, span by span, while its worker's backward still ran
// (PushAhead). Those of one step only: a span of another begins anew. A span that has come before changes nothing; one
// that cannot be there makes all of them unknown, so that the worker is asked for them again.
// A value; threads: the owner's. Errors: none.
#pragma once

#include <cstddef>
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
  // Copies what follows the header. False: it cannot be of a push of that shape.
  [[nodiscard]] bool take(const PushAhead& ahead, const Frames& frames, const TensorsShape& shape);
  // The shards of that push, where every element of them has come. Either way nothing is kept of it.
  [[nodiscard]] std::optional<std::vector<at::Tensor>> finish(const PushKey& push, const TensorsShape& shape);

 private:
  struct Part {
    at::Tensor shard;
    std::map<std::int64_t, std::int64_t> spans;  // that have come, joined where they touch: begin to end
    std::int64_t elements = 0;                   // in them
  };

  void begin(const TensorsShape& shape);
  [[nodiscard]] static bool add(Part& part, const ShardSpan& span, const at::Tensor& elements);

  PushKey push_;
  std::int64_t lease_ = kNone;
  std::vector<Part> parts_;  // [shard]; empty: nothing has come
};

}  // namespace sluice::ps
