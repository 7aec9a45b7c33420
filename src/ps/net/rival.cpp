#include "ps/net/rival.h"

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"

namespace sluice::ps {

void Rival::is_there(const std::string& where, const std::string& server, Nanoseconds now) {
  const int worker = static_cast<int>(worker_);
  if (where_.empty()) {
    since_ = now;
    log_info("the server has a worker ", worker, " already (", where, "); waiting until it ends");
  }
  where_ = where;
  if (now - since_ < limit_) return;
  throw ConfigError(server, " has a worker ", worker, " already (", where, "); give each its own number");
}

void Rival::throw_if_there(const std::string& what) const {
  if (where_.empty()) return;
  throw PeerError(
      concat(what, "; its worker ", static_cast<int>(worker_), " was ", where_, "; give each its own number"));
}

}  // namespace sluice::ps
