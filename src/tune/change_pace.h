// change_pace: whether a predicted gain is steady enough for a change of plan, judged in windows of steps. Other
// programs come and go, so a plan that was right may soon be wrong. Pure. Units: seconds of the slowest replica's step.
#pragma once

#include <optional>

namespace sluice::tune {

class ChangePace {
 public:
  static constexpr double kLeastGain = 0.05;
  static constexpr int kWindows = 2, kMostWindows = 64;

  // After each window. before_s: measured with the present plan. after_s: predicted for another. True: the gain was at
  // least kLeastGain in enough windows in a row. These are kWindows, and twice as many each time that the last change
  // did not make steps shorter; after a trial it is one.
  [[nodiscard]] bool add(double before_s, double after_s, bool was_trial = false);
  void changed(double before_s);       // the next window tells whether it helped
  void refused();                      // the next change needs kMostWindows
  void forget();                       // the last change can no longer be judged
  void begin_again() { gained_ = 0; }  // other steps are measured from now on

 private:
  int windows_ = kWindows;
  int gained_ = 0;  // windows in a row
  std::optional<double> before_change_s_;
};

}  // namespace sluice::tune
