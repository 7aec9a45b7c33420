#include "profiler/cupti/sequence_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace sluice::cupti {
namespace {

// The sequence that contains this moment; `last`: member with a sequence's last moment.
std::optional<std::size_t> at(std::span<const SequenceSpan> spans, Nanoseconds moment,
                              Nanoseconds SequenceSpan::*last) {
  const auto after = std::ranges::upper_bound(spans, moment, {}, &SequenceSpan::begin);
  if (after == spans.begin() || moment > *(after - 1).*last) return std::nullopt;
  return static_cast<std::size_t>(after - 1 - spans.begin());
}

}  // namespace

std::vector<std::optional<Nanoseconds>> sequence_kernels(const Records& records, std::span<const SequenceSpan> spans) {
  if (records.dropped > 0) return std::vector<std::optional<Nanoseconds>>(spans.size());
  std::vector<std::optional<Nanoseconds>> times(spans.size(), 0);
  std::unordered_map<std::uint32_t, Nanoseconds> launches;
  for (const Launch& launch : records.launches) launches[launch.correlation] = launch.begin;
  for (const Work& work : records.work) {
    const bool has_times = work.begin != 0 || work.end != 0;
    const auto launch = launches.find(work.correlation);
    std::optional<std::size_t> sequence;
    if (launch != launches.end())
      sequence = at(spans, launch->second, &SequenceSpan::end);
    else if (has_times)
      sequence = at(spans, work.begin, &SequenceSpan::idle);
    else
      return std::vector<std::optional<Nanoseconds>>(spans.size());
    if (!sequence) continue;
    std::optional<Nanoseconds>& time = times[*sequence];
    if (!has_times)
      time.reset();
    else if (time)
      *time += work.end - work.begin;
  }
  return times;
}

}  // namespace sluice::cupti
