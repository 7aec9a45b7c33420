// ledger: which samples of an epoch were given out, which have come into the weights, and which are still to be trained
// on, where workers take what they can instead of fixed shares (sampler.h). Samples are leased in the order of the
// epoch; those that come back are leased again before any new one. So every sample of an epoch ends in one of two
// places: it was pushed once, or it was reported lost.
// A lease is of one epoch, since the epoch decides how its samples are augmented; the next epoch may begin while leases
// of the one before are out.
// Pure: no clock, no thread of its own. Threads: one. Errors: BugError for a lease that is not out.
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

// Of one epoch; their sum is its number of samples.
struct LedgerCounts {
  std::int64_t waiting = 0;  // to be leased, for the first time or again
  std::int64_t leased = 0;
  std::int64_t pushed = 0;
  std::int64_t lost = 0;
  friend bool operator==(const LedgerCounts&, const LedgerCounts&) = default;
};

struct LedgerOptions {
  std::uint64_t seed = 0;  // of the order of samples
  std::int64_t samples = 1;
  bool shuffle = true;
  std::int64_t epochs = 0;  // after these there are no more leases; 0: endless
  std::int64_t slack = 0;   // no more than so many are left over by a lease: it takes them too
};

// Where a ledger stands, for a run that goes on from there: what was leased and had not come into the weights waits
// again, in the order of the epoch.
struct LedgerState {
  struct Epoch {
    std::int64_t next = 0;               // position in the order
    std::vector<std::int64_t> returned;  // samples before it that wait again
    std::int64_t pushed = 0;
    std::int64_t lost = 0;
  };
  std::int64_t first = 0;   // epochs before it are over
  std::vector<Epoch> open;  // those that have begun, from it on
};

// Whether a ledger of these options may stand there: every sample of an epoch is in one place.
[[nodiscard]] bool is_sound(const LedgerState& state, const LedgerOptions& options);

class Ledger {
 public:
  explicit Ledger(const LedgerOptions& options);
  // Requires: a sound state. Losses of epochs that are over are forgotten.
  Ledger(const LedgerOptions& options, const LedgerState& state);

  // At most so many samples and the slack, fewer at the end of an epoch; nothing when all epochs have been given out.
  // Requires: most > 0.
  [[nodiscard]] std::optional<Lease> lease(std::int64_t most);
  // A lease of just these samples of an epoch, for a ledger that goes on from an earlier state: another one had leased
  // them after that. Those before them in the order count as leased and come back. Nothing: one does not wait
  // here, and the ledger is of no more use.
  [[nodiscard]] std::optional<Lease> lease_again(std::int64_t epoch, const std::vector<std::int64_t>& samples);
  // These positions of the lease, ascending, have come into the weights; the others come back.
  void push(LeaseId lease, const std::vector<std::int64_t>& positions);
  void push_first(LeaseId lease, std::int64_t count);  // positions 0 .. count - 1
  void push_all(LeaseId lease);
  void give_back(LeaseId lease);  // nothing of it was pushed: its worker has died, or its push was not taken
  void lose(LeaseId lease);       // nobody knows what has become of it; not trained on again

  // Of an epoch; those that have not begun wait whole.
  [[nodiscard]] LedgerCounts counts(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t epochs_over() const;  // the first so many have nothing waiting or leased
  [[nodiscard]] LedgerState state() const;
  [[nodiscard]] std::int64_t leases_out() const { return static_cast<std::int64_t>(out_.size()); }

 private:
  struct Epoch {
    std::vector<std::int64_t> order;  // empty once all have been leased
    std::int64_t next = 0;            // position in the order
    std::deque<std::int64_t> returned;
    LedgerCounts counts;
  };

  void check_positions(LeaseId lease, const std::vector<std::int64_t>& positions) const;
  [[nodiscard]] Lease take_out(LeaseId lease);
  // Position in open_ of the first that has something waiting, which is begun where there is none; nothing: all epochs
  // have been given out.
  [[nodiscard]] std::optional<std::size_t> epoch_with_work();
  void begin_epoch();
  // Takes one that waits out of its turn; false: it does not wait.
  [[nodiscard]] static bool take_waiting(Epoch& epoch, std::int64_t sample);
  void forget_finished_epochs();

  LedgerOptions options_;
  std::int64_t next_lease_ = 0;
  std::int64_t first_ = 0;                            // epochs before it are over
  std::deque<Epoch> open_;                            // those that have begun, from first_
  std::map<std::int64_t, LedgerCounts> with_losses_;  // those that are over and have lost samples
  std::map<LeaseId, Lease> out_;
};

}  // namespace sluice::data
