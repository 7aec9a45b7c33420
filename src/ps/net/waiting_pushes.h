// waiting_pushes: committed pushes that wait for their update, and their records in the journal (push_journal.h).
// Threads: one. Errors: those of the journal.
#pragma once

#include <map>
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
  // journal: null if pushes need not outlive the server.
  explicit WaitingPushes(PushJournal* journal) : journal_(journal) {}

  // Adds a push that was committed just now and writes it to the journal.
  void add(WaitingPush push, const Tensors& tensors);
  // Adds a push that an earlier server committed.
  void restore(WaitingPush push);
  [[nodiscard]] bool contains(WorkerId worker) const { return pushes_.contains(worker); }
  // Requires contains().
  [[nodiscard]] WaitingPush take(WorkerId worker);
  void set_send_time(WorkerId worker, double send_s);
  // No send time follows.
  void on_worker_removed(WorkerId worker);

  // Whether a push of the incarnation of `key` must become durable before its worker may be answered.
  [[nodiscard]] bool is_pending(const PushKey& key) const;
  // Returns the pushes that may be answered now. One sync covers all pushes that arrived together.
  [[nodiscard]] std::vector<PushKey> make_durable();
  // Writes a decision. is_durable: it must be durable on return.
  void write_update(const UpdateRecord& decided, bool is_durable);
  // The journal then continues from the server's current weights. Requires a journal.
  void begin_journal(const Server& server);

 private:
  PushJournal* journal_;
  std::map<WorkerId, WaitingPush> pushes_;
  std::vector<PushKey> pending_;
};

}  // namespace sluice::ps
