#include "profiler/cupti/step_kernels.h"

#include <algorithm>
#include <utility>

#include "core/log.h"

namespace sluice::cupti {

StepSpans StepKernels::attributed(StepSpans host) {
  std::vector<StreamKey> streams;
  for (const StepSpans::Slot& slot : host.slots) {
    streams.push_back(session_->key_of(slot.stream));
    const bool is_unknown = slot.stream.gpu >= 0 && streams.back().device < 0;
    if (is_unknown && !std::exchange(has_warned_, true))
      log_warning("CUPTI has no record of a stream of cuda:", slot.stream.gpu, "; using CUDA event times for it");
  }
  const Records records = session_->collect();
  if (!std::exchange(is_warm_, true)) return host;
  end_of_last_ = host.end;
  Attribution result = attribute(std::move(host), streams, records);
  result.spans.dropped += std::exchange(late_, 0);
  ++steps_;
  counts_.add(result.counts);
  for (const auto& [key, sum] : result.kernels) {
    kernels_[key].calls += sum.calls;
    kernels_[key].time += sum.time;
  }
  return std::move(result.spans);
}

void StepKernels::forget() {
  const Records records = session_->collect();
  if (end_of_last_ == 0) return;
  const std::uint64_t late = count_late(records, end_of_last_);
  late_ += late;
  counts_.work += late;
  counts_.late += late;
}

std::vector<StepKernels::Row> StepKernels::rows() const {
  std::vector<Row> rows;
  rows.reserve(kernels_.size());
  for (const auto& [key, sum] : kernels_)
    rows.push_back({key.phase, session_->names().name(key.layer), session_->names().name(key.name), sum});
  std::ranges::stable_sort(rows, [](const Row& a, const Row& b) { return a.sum.time > b.sum.time; });
  return rows;
}

}  // namespace sluice::cupti
