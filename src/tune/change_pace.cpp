#include "tune/change_pace.h"

#include <algorithm>

namespace sluice::tune {

bool ChangePace::add(double before_s, double after_s, bool was_trial) {
  if (before_change_s_) windows_ = before_s < *before_change_s_ ? kWindows : std::min(2 * windows_, kMostWindows);
  before_change_s_.reset();
  const bool gains = before_s - after_s >= kLeastGain * before_s;
  gained_ = gains ? gained_ + 1 : 0;
  return gains && gained_ >= (was_trial ? 1 : windows_);
}

void ChangePace::changed(double before_s) { before_change_s_ = before_s; }

void ChangePace::refused() {
  windows_ = kMostWindows;
  forget();
}

void ChangePace::forget() { before_change_s_.reset(); }

}  // namespace sluice::tune
