// stop_signal: SIGINT, SIGTERM and SIGHUP (unless nohup ignores it) ask the training loop to save and stop; a later one
// ends the process at once, but not within a second of the first: launchers and shells often signal twice.
// One object at a time. Threads: requested() from any.
#pragma once

namespace sluice::train {

class StopSignal {
 public:
  StopSignal();   // installs the handlers
  ~StopSignal();  // puts the old ones back
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  [[nodiscard]] static bool requested();    // while there is an object
  [[nodiscard]] static const char* name();  // "SIGINT", "SIGTERM", "SIGHUP"
};

}  // namespace sluice::train
