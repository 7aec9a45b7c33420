// push_journal: the interface by which a server records pushes before it acknowledges them, so that they outlive it.
// Threads: the server's. Errors: an exception ends the run, and the push is not acknowledged.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/push.h"
#include "ps/server.h"

namespace sluice::ps {

struct CommittedPush {
  Push push;
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;  // the samples that have run
};

class PushJournal {
 public:
  virtual ~PushJournal() = default;
  // The record is written on return, but durable only after make_durable().
  virtual void write_push(const CommittedPush& push) = 0;
  virtual void write_update(const UpdateRecord& done) = 0;
  // Called when the server's state after the last update is copied for a checkpoint. The journal then begins anew with
  // this state and the pushes that wait for their update.
  virtual void begin(const Weights& weights, const std::vector<CommittedPush>& waiting) = 0;
  // Whether workers may be answered only after make_durable(). Pushes that arrive together share one call.
  [[nodiscard]] virtual bool must_make_durable() const = 0;
  virtual void make_durable() = 0;
};

}  // namespace sluice::ps
