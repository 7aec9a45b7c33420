// push_journal: what a server tells of the pushes that it takes before it tells their workers, so that they outlive it.
// Threads: the server's. Errors: what an implementation throws ends the run, and the push is not acknowledged.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/push.h"
#include "ps/server.h"

namespace sluice::ps {

// A committed push, and the samples that it is of.
struct CommittedPush {
  Push push;
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;  // those that have run
};

class PushJournal {
 public:
  PushJournal() = default;
  virtual ~PushJournal() = default;
  PushJournal(const PushJournal&) = delete;
  PushJournal& operator=(const PushJournal&) = delete;

  // Written when it returns, but durable only after make_durable().
  virtual void write_push(const CommittedPush& push) = 0;
  // An update was made of pushes that were told.
  virtual void write_update(const UpdateRecord& done) = 0;
  // A copy of the server's state is taken after that update, for a checkpoint: from here on the journal is of what
  // follows, and of the pushes that wait for their update.
  virtual void begin(const Weights& weights, const std::vector<CommittedPush>& waiting) = 0;
  // Where a push counts only after make_durable(), workers are told after that; pushes that came together share one.
  [[nodiscard]] virtual bool must_make_durable() const = 0;
  virtual void make_durable() = 0;
};

}  // namespace sluice::ps
