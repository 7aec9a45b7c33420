// ledger: tracks which samples of an epoch are leased, committed to the weights, or waiting, for workers that take work
// as they can. Samples are leased in the order of the epoch; returned samples before new ones. So every sample of an
// epoch is finally pushed exactly once or reported lost.
// A lease belongs to one epoch, because the epoch determines the augmentation. The next epoch may begin while leases of
// the previous one are out. Threads: one. Errors: BugError for a lease that is not out.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace sluice::data {

enum class LeaseId : std::int64_t {};

struct Lease {
  LeaseId id{};
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;  // indices into the data set
};

struct LedgerCounts {
  std::int64_t waiting = 0;  // to be leased, for the first time or again
  std::int64_t leased = 0;
  std::int64_t pushed = 0;
  std::int64_t lost = 0;
  friend bool operator==(const LedgerCounts&, const LedgerCounts&) = default;
};

struct LedgerOptions {
  std::uint64_t seed = 0;
  std::int64_t samples = 1;
  bool shuffle = true;
  std::int64_t epochs = 0;  // number of epochs to lease; 0: unlimited
  std::int64_t slack = 0;   // a lease that would leave at most this many samples takes them too
};

// State to resume a ledger from. Samples that were leased but not pushed wait again, in the order of the epoch.
struct LedgerState {
  struct Epoch {
    std::int64_t next = 0;               // position in the order
    std::vector<std::int64_t> returned;  // samples before `next` that wait again
    std::int64_t pushed = 0;
    std::int64_t lost = 0;
  };
  std::int64_t first = 0;  // epochs before it are over
  std::vector<Epoch> open;
};

// True if a ledger with these options can have this state: every sample of an epoch is in exactly one place.
[[nodiscard]] bool is_sound(const LedgerState& state, const LedgerOptions& options);

class Ledger {
 public:
  explicit Ledger(const LedgerOptions& options);
  // Requires: a sound state. Forgets losses of finished epochs.
  Ledger(const LedgerOptions& options, const LedgerState& state);

  // Leases at most `most` (> 0) samples plus the slack, fewer at the end of an epoch; empty if all epochs are leased.
  [[nodiscard]] std::optional<Lease> lease(std::int64_t most);
  // Repeats a lease that was made after the restored state. Samples before these in the order count as leased and
  // returned. Empty: a sample does not wait here; the ledger must then be discarded.
  [[nodiscard]] std::optional<Lease> lease_again(std::int64_t epoch, const std::vector<std::int64_t>& samples);
  // Marks these positions of the lease (ascending) as pushed; the others return.
  void push(LeaseId lease, const std::vector<std::int64_t>& positions);
  void push_first(LeaseId lease, std::int64_t count);
  void push_all(LeaseId lease);
  void give_back(LeaseId lease);  // nothing was pushed: the worker died or the push was rejected
  void lose(LeaseId lease);       // the outcome is unknown; the samples are not trained again

  // Counts of an epoch; if it has not begun, all its samples wait.
  [[nodiscard]] LedgerCounts counts(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t epochs_over() const;  // number of leading epochs with nothing waiting or leased
  [[nodiscard]] LedgerState state() const;
  [[nodiscard]] std::int64_t leases_out() const { return static_cast<std::int64_t>(out_.size()); }

 private:
  struct Epoch {
    std::vector<std::int64_t> order;  // empty once all are leased
    std::int64_t next = 0;
    std::deque<std::int64_t> returned;
    LedgerCounts counts;
  };

  void check_positions(LeaseId lease, const std::vector<std::int64_t>& positions) const;
  [[nodiscard]] Lease take_out(LeaseId lease);
  // Position in open_ of the first epoch with waiting samples, begun if necessary; empty if all epochs are leased.
  [[nodiscard]] std::optional<std::size_t> epoch_with_work();
  void begin_epoch();
  [[nodiscard]] static bool take_waiting(Epoch& epoch, std::int64_t sample);
  void forget_finished_epochs();

  LedgerOptions options_;
  std::int64_t next_lease_ = 0;
  std::int64_t first_ = 0;
  std::deque<Epoch> open_;
  std::map<std::int64_t, LedgerCounts> with_losses_;  // finished epochs with lost samples
  std::map<LeaseId, Lease> out_;
};

}  // namespace sluice::data
