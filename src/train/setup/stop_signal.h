// stop_signal: SIGINT, SIGTERM and SIGHUP (unless nohup ignores it) ask the training loop to save and stop. After one
// more second, another signal ends the process at once (launchers and shells often signal twice). At most one object at
// a time. Threads: requested() from any.
#pragma once

namespace sluice::train {

class StopSignal {
 public:
  // After the object's end: restore the old handlers, or ignore signals so that the exit code cannot change.
  enum class Afterwards { kAsBefore, kIgnored };

  explicit StopSignal(Afterwards afterwards = Afterwards::kAsBefore);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] static bool requested();  // only while an object exists
  [[nodiscard]] static const char* name();

 private:
  Afterwards afterwards_;
};

}  // namespace sluice::train
