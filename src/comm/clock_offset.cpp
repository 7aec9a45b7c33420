#include "comm/clock_offset.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::comm {

ClockOffset clock_offset(std::span<const Meeting> own, std::span<const Meeting> of_rank_0) {
  check(!own.empty() && own.size() == of_rank_0.size(), "both processes have recorded the same meetings");
  Nanoseconds least = std::numeric_limits<Nanoseconds>::min(), most = std::numeric_limits<Nanoseconds>::max();
  for (std::size_t i = 0; i < own.size(); ++i) {
    least = std::max(least, own[i].came - of_rank_0[i].left);
    most = std::min(most, own[i].left - of_rank_0[i].came);
  }
  // The bounds may cross slightly if the clocks drift.
  const Nanoseconds error = std::max<Nanoseconds>((most - least + 1) / 2, 0);
  return {least + (most - least) / 2, error};
}

ClockOffset covering(const ClockOffset& one, const ClockOffset& other) {
  const Nanoseconds least = std::min(one.offset - one.error, other.offset - other.error);
  const Nanoseconds most = std::max(one.offset + one.error, other.offset + other.error);
  return {least + (most - least) / 2, (most - least + 1) / 2};
}

ClockOffset measure_clock_offset(const Communicator& communicator) {
  constexpr int kMeetings = 32;
  const bool is_reference = communicator.rank() == 0;
  std::vector<Meeting> own(kMeetings);
  for (Meeting& meeting : own) {
    const at::Tensor nothing = at::zeros({1}, at::kLong);
    meeting.came = now_ns();
    communicator.all_reduce(nothing).wait();
    meeting.left = now_ns();
  }
  at::Tensor times = at::empty({kMeetings, 2}, at::kLong);
  for (int i = 0; i < kMeetings; ++i) times[i][0] = own[i].came, times[i][1] = own[i].left;
  communicator.broadcast(times, /*root=*/0);
  if (is_reference) return {};
  std::vector<Meeting> theirs(kMeetings);
  for (int i = 0; i < kMeetings; ++i) theirs[i] = {times[i][0].item<Nanoseconds>(), times[i][1].item<Nanoseconds>()};
  return clock_offset(own, theirs);
}

}  // namespace sluice::comm
