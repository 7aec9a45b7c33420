#include "ps/net/push_assembly.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>

namespace sluice::ps {
namespace {

// Number of elements in all spans; nothing if the spans do not fit a shard of that length.
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
    begin(shape);
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

void PushAssembly::begin(const TensorsShape& shape) {
  parts_.clear();
  for (const std::int64_t length : shape.shards) parts_.push_back({.shard = at::empty({length}, shape.dtype)});
}

// Returns false if the span overlaps received elements only in part.
bool PushAssembly::add(Part& part, const ShardSpan& span, const at::Tensor& elements) {
  std::int64_t begin = span.offset, end = span.offset + span.elements;
  const auto next = part.spans.upper_bound(begin);
  const auto before = next == part.spans.begin() ? part.spans.end() : std::prev(next);
  const std::int64_t known = before == part.spans.end() ? 0 : before->second;  // end of the range before `begin`
  if (end <= known) return true;
  if (begin < known || (next != part.spans.end() && next->first < end)) return false;
  part.shard.narrow(0, begin, span.elements).copy_(elements);
  part.elements += span.elements;
  if (next != part.spans.end() && next->first == end) {
    end = next->second;
    part.spans.erase(next);
  }
  if (before != part.spans.end() && known == begin)
    before->second = end;
  else
    part.spans.emplace(begin, end);
  return true;
}

std::optional<std::vector<at::Tensor>> PushAssembly::finish(const PushKey& push, const TensorsShape& shape) {
  if (push != push_) parts_.clear();
  if (parts_.empty()) begin(shape);  // nothing has arrived, which is complete if all shards are empty
  const std::vector<Part> parts = std::exchange(parts_, {});
  const bool is_whole =
      std::ranges::all_of(parts, [](const Part& part) { return part.elements == part.shard.numel(); });
  if (!is_whole) return std::nullopt;
  std::vector<at::Tensor> shards;
  for (const Part& part : parts) shards.push_back(part.shard);
  return shards;
}

}  // namespace sluice::ps
