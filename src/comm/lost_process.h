// lost_process: a process that is no longer part of the run, and the reason.
#pragma once

#include <string>

namespace sluice::comm {

struct LostProcess {
  enum class How {
    kDead,     // its connection has ended
    kHung,     // no message came from it within the peer timeout
    kFailed,   // it sent the reason before it ended
    kStopped,  // it was asked to stop before training and sent so
    kGivenUp,  // this process itself: the others reported it as hung
  };

  int rank = 0;
  std::string host;
  How how = How::kDead;
  std::string reason;  // kHung, kGivenUp: length of the silence ("10 s"); kFailed, kStopped: its error

  [[nodiscard]] std::string describe() const;

  bool operator==(const LostProcess&) const = default;
};

}  // namespace sluice::comm
