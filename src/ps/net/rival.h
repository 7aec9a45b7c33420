// rival: another process that has this worker's number, as the server says: it may be gone soon, or one of the two was
// started with a wrong number. Threads: one. Errors: ConfigError, PeerError, which name it.
#pragma once

#include <string>

#include "core/clock.h"
#include "ps/push.h"

namespace sluice::ps {

class Rival {
 public:
  Rival(WorkerId worker, Nanoseconds limit) : worker_(worker), limit_(limit) {}

  // ConfigError once it has been there for longer than the limit.
  void is_there(const std::string& where, const std::string& server, Nanoseconds now);
  void is_gone() { where_.clear(); }
  // Where this worker has waited for nothing: PeerError with what has happened, and who had its number.
  void throw_if_there(const std::string& what) const;

 private:
  WorkerId worker_;
  Nanoseconds limit_;
  Nanoseconds since_ = 0;
  std::string where_;  // empty: there is none
};

}  // namespace sluice::ps
