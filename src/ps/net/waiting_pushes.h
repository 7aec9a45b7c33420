// waiting_pushes: committed pushes that wait for their update, and their records in the journal (push_journal.h).
// Threads: one. Errors: those of the journal.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "data/ledger.h"
#include "ps/net/push_journal.h"
#include "ps/push.h"
#include "ps/server.h"

namespace sluice::ps {

struct WaitingPush {
  PushRecord record;
  data::Lease lease;
  PushScores scores;
  PushTimes times;
  bool is_timed = false;  // its worker has reported how long it took to send
};

class WaitingPushes {
 public:
  explicit WaitingPushes(PushJournal* journal) : journal_(journal) {}

  // add() also writes the push to the journal; restore() is for a push that an earlier server committed.
  void add(WaitingPush push, const Tensors& tensors);
  void restore(const WaitingPush& push) { pushes_.insert_or_assign(push.record.worker, push); }
  [[nodiscard]] bool contains(WorkerId worker) const { return pushes_.contains(worker); }
  [[nodiscard]] WaitingPush take(WorkerId worker);
  // The send time of the worker's push, if there is one; nothing: it will not become known.
  void set_send_time(WorkerId worker, std::optional<double> send_s);
  // True if a push of the same worker and incarnation is not durable yet: the worker may not be answered before.
  [[nodiscard]] bool is_pending(const PushKey& key) const;
  // Returns the pushes that may be answered now. One sync covers all pushes that arrived together.
  [[nodiscard]] std::vector<PushKey> make_durable();
  // Writes a decision. is_durable: it must be durable on return.
  void write_update(const UpdateRecord& decided, bool is_durable);
  // The journal then continues from the server's current weights. Requires a journal.
  void begin_journal(const Server& server);

 private:
  PushJournal* journal_;  // null: pushes need not outlive the server
  std::map<WorkerId, WaitingPush> pushes_;
  std::vector<PushKey> pending_;
};

}  // namespace sluice::ps
