#include "ps/net/push_assembly.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>

namespace sluice::ps {
namespace {

// In all spans; nothing: a shard of that length does not have them.
std::optional<std::int64_t> count_elements(const std::vector<ShardSpan>& spans, std::int64_t shard) {
  std::int64_t elements = 0;
  for (const ShardSpan& span : spans) {
    if (span.elements > shard - span.offset || span.elements > shard - elements) return std::nullopt;
    elements += span.elements;
  }
  return elements;
}

}  // namespace

bool PushAssembly::take(const PushAhead& ahead, const Frames& frames, const TensorsShape& shape) {
  if (frames.size() != 2 || ahead.shard >= std::ssize(shape.shards)) return false;
  const auto elements = count_elements(ahead.spans, shape.shards[ahead.shard]);
  if (!elements) return false;
  const auto flat = tensor_of(frames[1], shape.dtype, *elements);
  if (!flat) return false;
  if (parts_.empty() || ahead.push != push_ || ahead.lease != lease_) {
    push_ = ahead.push;
    lease_ = ahead.lease;
    parts_.clear();
    for (const std::int64_t length : shape.shards) parts_.push_back({.shard = at::empty({length}, shape.dtype)});
  }
  std::int64_t begin = 0;
  for (const ShardSpan& span : ahead.spans) {
    if (!add(parts_[ahead.shard], span, flat->narrow(0, begin, span.elements))) {
      parts_.clear();
      return false;
    }
    begin += span.elements;
  }
  return true;
}

// False: it lies over a part of another one.
bool PushAssembly::add(Part& part, const ShardSpan& span, const at::Tensor& elements) {
  const std::int64_t end = span.offset + span.elements;
  const auto next = part.spans.lower_bound(span.offset);
  if (next != part.spans.end() && next->first == span.offset && next->second == end) return true;
  if (next != part.spans.end() && next->first < end) return false;
  if (next != part.spans.begin() && std::prev(next)->second > span.offset) return false;
  part.spans.emplace_hint(next, span.offset, end);
  part.elements += span.elements;
  part.shard.narrow(0, span.offset, span.elements).copy_(elements);
  return true;
}

std::optional<std::vector<at::Tensor>> PushAssembly::finish(const PushKey& push) {
  const std::vector<Part> parts = std::exchange(parts_, {});
  const bool is_whole = push == push_ && !parts.empty() && std::ranges::all_of(parts, [](const Part& part) {
                          return part.elements == part.shard.numel();
                        });
  if (!is_whole) return std::nullopt;
  std::vector<at::Tensor> shards;
  for (const Part& part : parts) shards.push_back(part.shard);
  return shards;
}

}  // namespace sluice::ps
