// update_queue: updates that a server has made, until their turn to be told. Each waits a while for its workers to say
// how long their pushes took to send. Not here: what a worker says, and when (network_server.h).
// Pure; threads: one. Errors: none.
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
  Nanoseconds at = 0;  // this and the next one are for records: by now_ns()
  // When this server first gave a worker weights to begin with: before that it waited for workers. Nothing: it has not
  // yet, as where an earlier server had committed the pushes.
  std::optional<Nanoseconds> open_since = {};
  std::optional<data::LedgerState> ledger;  // right after it; there where state is
  std::optional<ServerState> state;         // likewise, where NetworkOptions::wants_state said so
};

class UpdateQueue {
 public:
  // untimed: its pushes of which nobody has said how long they took to send. now: as take() has it.
  void add(NetworkUpdate update, std::vector<PushKey> untimed, Nanoseconds now);
  void set_send_time(const PushKey& push, double send_s);
  // That worker says nothing any more.
  void forget(WorkerId worker);

  [[nodiscard]] bool empty() const { return made_.empty(); }
  // When the first one is told whatever is not known of it; nothing: there is none.
  [[nodiscard]] std::optional<Nanoseconds> due_at() const;
  // The first one, where it is its turn.
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
