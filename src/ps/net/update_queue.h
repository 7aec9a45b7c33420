// update_queue: finished updates in order, until they are reported. Each waits a short time for its workers to send how
// long their pushes took. Pure. Threads: one. Errors: never throws.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "data/ledger.h"
#include "ps/push.h"
#include "ps/server.h"

namespace sluice::ps {

struct NetworkUpdate {
  UpdateRecord done;
  std::vector<PushDone> pushes;  // in the order of done.update.pushes
  ServerProgress before;
  ServerProgress after;
  Nanoseconds at = 0;  // this and the next one are for records, by now_ns()
  // When this server first gave weights to a worker; it waited for workers before. Not set if it has not yet, for
  // example if an earlier server committed the pushes.
  std::optional<Nanoseconds> open_since = {};
  std::optional<data::LedgerState> ledger;  // right after the update; set together with `state`
  std::optional<ServerState> state;         // set if NetworkOptions::wants_state returned true
};

class UpdateQueue {
 public:
  // untimed: pushes of the update without a known send time.
  void add(NetworkUpdate update, std::vector<PushKey> untimed, Nanoseconds now);
  void set_send_time(const PushKey& push, double send_s);
  void forget(WorkerId worker);

  [[nodiscard]] bool empty() const { return made_.empty(); }
  // When the first update is reported even if times are missing; nothing if the queue is empty.
  [[nodiscard]] std::optional<Nanoseconds> due_at() const;
  // Returns the first update if it is due or complete.
  [[nodiscard]] std::optional<NetworkUpdate> take(Nanoseconds now);

 private:
  struct Made {
    NetworkUpdate update;
    std::vector<PushKey> untimed;
    Nanoseconds since = 0;
  };

  std::deque<Made> made_;
};

}  // namespace sluice::ps
