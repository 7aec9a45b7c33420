// rival: another process that has this worker's number, as reported by the server. It may end soon, or one of the two
// was started with a wrong number. Threads: one. Errors: ConfigError and PeerError, which name the other process.
#pragma once

#include <string>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "ps/push.h"

namespace sluice::ps {

class Rival {
 public:
  Rival(WorkerId worker, Nanoseconds limit) : worker_(worker), limit_(limit) {}

  // The server reports a rival at `where`. Throws ConfigError if one has been reported for longer than the limit.
  void report(const std::string& where, const std::string& server, Nanoseconds now) {
    const int worker = static_cast<int>(worker_);
    if (where_.empty()) {
      since_ = now;
      log_info("the server has a worker ", worker, " already (", where, "); waiting until it ends");
    }
    where_ = where;
    if (now - since_ < limit_) return;
    throw ConfigError(server, " has a worker ", worker, " already (", where, "); give each its own number");
  }
  void forget() { where_.clear(); }
  // Throws PeerError with `what` and the process that had the number, if there was one.
  void throw_if_there(const std::string& what) const {
    if (where_.empty()) return;
    throw PeerError(
        concat(what, "; its worker ", static_cast<int>(worker_), " was ", where_, "; give each its own number"));
  }

 private:
  WorkerId worker_;
  Nanoseconds limit_;
  Nanoseconds since_ = 0;
  std::string where_;  // empty: no rival
};

}  // namespace sluice::ps
