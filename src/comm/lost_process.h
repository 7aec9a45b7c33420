// lost_process: a process that is no longer part of the run, and why.
#pragma once

#include <string>

namespace sluice::comm {

struct LostProcess {
  enum class How {
    kDead,     // its connection has ended
    kHung,     // nothing was heard of it for too long
    kFailed,   // it has said itself why it ends
    kStopped,  // so too: it was asked to, before training
    kGivenUp,  // this very process: the others had called it hung, and it has learnt so
  };

  int rank = 0;
  std::string host;
  How how = How::kDead;
  std::string reason;  // kHung, kGivenUp: for how long nothing was heard ("10 s"); kFailed, kStopped: the
                       // sentence of its error

  // "rank 1 (host nodeB) died"
  [[nodiscard]] std::string describe() const;

  bool operator==(const LostProcess&) const = default;
};

}  // namespace sluice::comm
