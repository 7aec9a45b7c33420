// regroup: how the members of a run agree on who goes on after a loss, and who joins. Pure: one object for each
// process, which takes what its process sees and receives, and returns messages. docs/explanation/regrouping.md has the
// protocol.
//
// A run is a sequence of groups, numbered from 0. The lowest member that is not gone coordinates: it waits until all
// members that are not gone have stopped training (`ready`), proposes the next group, and commits it once all of its
// members have accepted. A member accepts from the coordinator that it follows only. If a coordinator dies, the next
// one commits what a living member has accepted, because some process may have gone on with it.
//
// A process whose connection ended is dead. A silent one may live behind a broken network, so it keeps its vote: those
// who go on are the majority of the members that are not dead, or half of them with the lowest.
//
// A guest is a process that wants to join. It is `ready` from its start, and follows the coordinator as members do. The
// next group has the guests that the coordinator knows by then. Guests have no vote.
// Requires: the messages of a process arrive in their order, and before the end of its connection. The number of a
// guest was never used before in the run.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sluice::comm {

inline constexpr std::int64_t kNoState = -1;

struct Group {
  int number = 0;
  std::vector<int> members;  // ascending
  // Keeps the records and hands out its state after `steps_done` steps: the leader of the group before, if it has a
  // whole state, else the lowest member with the newest one.
  int leader = 0;
  std::int64_t steps_done = 0;

  [[nodiscard]] bool contains(int member) const { return std::ranges::binary_search(members, member); }
  auto operator<=>(const Group&) const = default;
};

struct Proposal {
  int coordinator = 0, attempt = 0;
  Group group;
  auto operator<=>(const Proposal&) const = default;
};

struct RegroupMessage {
  enum class Kind {
    kLost,     // the sender has lost `member`; is_dead: its connection has ended
    kReady,    // to the coordinator: the sender of `group` has stopped after `steps_done` steps, or kNoState
    kPropose,  // from the coordinator: `group`
    kAccept,   // to the coordinator: its proposal `attempt`
    kCommit,   // `group` goes on
  };

  Kind kind = Kind::kLost;
  int number = 0;  // of the sender's group
  int member = 0;
  bool is_dead = false;
  std::int64_t steps_done = kNoState;
  int attempt = 0;
  Group group;
  std::optional<Proposal> accepted;  // kReady: by the sender, which does not know whether it was committed

  auto operator<=>(const RegroupMessage&) const = default;
};

class Regroup {
 public:
  using Outbox = std::vector<std::pair<int, RegroupMessage>>;  // receiver, message

  // A process that is no member of `group` is a guest.
  Regroup(int self, Group group) : self_(self), group_(std::move(group)) {}

  // This process sees that a member is gone. is_dead: its connection ended, or it said that it ends.
  void lost(int member, bool is_dead);
  // This process has stopped training. steps_done: of its whole state; kNoState if the state is not whole.
  void ready(std::int64_t steps_done);
  void receive(int from, const RegroupMessage& message);

  [[nodiscard]] Outbox take_outbox() { return std::exchange(outbox_, {}); }
  [[nodiscard]] const Group& group() const { return group_; }
  // Training must stop: a member is gone, or another one has stopped for that reason.
  [[nodiscard]] bool is_disturbed() const { return is_disturbed_; }
  // ready() was called, and the group is not decided yet.
  [[nodiscard]] bool is_waiting() const { return steps_done_.has_value() && why_not_.empty(); }
  // True in the coordinator only, while guests wait. They join once all members are ready.
  [[nodiscard]] bool has_guests() const;
  // Why this process cannot go on; empty if it can. It must then end.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] bool is_gone(int member) const { return gone_.contains(member); }

  auto operator<=>(const Regroup&) const = default;

 private:
  using Kind = RegroupMessage::Kind;

  void send(int to, RegroupMessage message);
  void send_to_others(const std::vector<int>& members, const RegroupMessage& message);
  void note_lost(int member, bool is_dead);
  void take_own_loss(int number);
  void take_ready(int from, const RegroupMessage& message);
  void go_on();
  void follow(int coordinator);
  void coordinate();
  [[nodiscard]] bool is_guest() const { return !group_.contains(self_); }
  [[nodiscard]] std::set<int> guests() const;
  [[nodiscard]] std::optional<Proposal> highest_accepted() const;
  [[nodiscard]] bool have_majority(const std::vector<int>& members) const;
  void propose(const std::vector<int>& members);
  void commit(const Group& group);
  void take(const Group& group);
  void give_up(std::string why);

  int self_;
  Group group_;
  std::set<int> gone_, dead_;  // members and guests, of this group and earlier ones
  bool is_disturbed_ = false;
  std::optional<std::int64_t> steps_done_;  // once ready
  std::optional<int> follows_;              // the coordinator that has this process's promise
  std::optional<Proposal> accepted_;
  std::map<int, RegroupMessage> ready_;  // coordinator: kReady of the others and of guests
  std::optional<Proposal> proposed_;     // coordinator
  std::set<int> accepts_;
  int attempts_ = 0;
  std::string why_not_;
  Outbox outbox_;
};

}  // namespace sluice::comm
