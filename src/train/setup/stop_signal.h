// stop_signal: SIGINT, SIGTERM and SIGHUP (unless nohup ignores it) ask the training loop to save and stop; a later one
// ends the process at once, but not within a second of the first: launchers and shells often signal twice.
// One object at a time. Threads: requested() from any.
#pragma once

namespace sluice::train {

class StopSignal {
 public:
  // What becomes of the signals when the object goes: the old handlers, or nothing in a program that ends then: one
  // that comes late must not change its exit code.
  enum class Afterwards { kAsBefore, kIgnored };

  explicit StopSignal(Afterwards afterwards = Afterwards::kAsBefore);  // installs the handlers
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] static bool requested();    // while there is an object
  [[nodiscard]] static const char* name();  // "SIGINT", "SIGTERM", "SIGHUP"

 private:
  Afterwards afterwards_;
};

}  // namespace sluice::train
