// Regrouping after losses and for guests, explored exhaustively: all orders in which messages arrive, processes stop
// training, die and are suspected.
#include "comm/regroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace sluice::comm {

void PrintTo(const Group& group, std::ostream* out) {
  *out << "group " << group.number << " of " << testing::PrintToString(group.members) << " from " << group.leader
       << " at " << group.steps_done;
}

namespace {

struct Network {
  std::vector<Regroup> processes;  // [member]
  std::set<int> dead;
  std::set<int> has_stopped;  // training, since the last disturbance
  std::map<std::pair<int, int>, std::vector<RegroupMessage>> links;
  std::set<std::pair<int, int>> ends;      // (who sees it, whose end): the connection has ended behind its messages
  std::set<std::pair<int, int>> silences;  // (who, whom): still to be seen
  int deaths_left = 0;
  int vote = -1;  // number of the last group that stops training for a guest

  auto operator<=>(const Network&) const = default;
};

// Lets the processes of a network take all possible turns, and checks what must always be true.
class Explorer {
 public:
  // silences: (who, whom) a process may begin to suspect. are_cut_off: then no message passes between the two, either.
  // guests: processes that want to join.
  Explorer(int processes, int deaths, std::set<std::pair<int, int>> silences = {}, bool are_cut_off = false,
           int guests = 0) {
    if (are_cut_off) cut_ = silences;
    Group all{.number = 0};
    for (int member = 0; member < processes; ++member) all.members.push_back(member);
    Network start{.silences = std::move(silences), .deaths_left = deaths};
    for (int process = 0; process < processes + guests; ++process) start.processes.emplace_back(process, all);
    for (int guest = processes; guest < processes + guests; ++guest) {
      start.has_stopped.insert(guest);
      start.processes[guest].ready(kNoState);
      for (auto& [to, message] : start.processes[guest].take_outbox()) start.links[{guest, to}].push_back(message);
    }
    add(std::move(start));
  }

  template <typename AtEnd>
  void run(const AtEnd& at_end) {
    while (!open_.empty() && !testing::Test::HasFailure()) {
      const Network* network = open_.front();
      open_.pop_front();
      if (!turn(*network)) {
        ++ends_;
        at_end(*network);
      }
    }
  }

  std::size_t seen() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }

 private:
  void add(Network network) {
    const auto [place, is_new] = seen_.insert(std::move(network));
    if (is_new) open_.push_back(&*place);
  }

  // After process `member` has acted: its messages go out, and its decisions must be those of all.
  void settle(Network network, int member) {
    Regroup& process = network.processes[member];
    for (auto& [to, message] : process.take_outbox()) {
      if (may_die(network)) {  // before this message
        Network without_it = network;
        die(without_it, member);
        add(std::move(without_it));
      }
      if (!network.dead.contains(to) && !cut_.contains({member, to}))
        network.links[{member, to}].push_back(std::move(message));
    }
    if (!process.is_waiting()) network.has_stopped.erase(member);
    for (int other = 0; other < std::ssize(network.processes); ++other) {
      const Group &own = process.group(), &theirs = network.processes[other].group();
      if (!network.dead.contains(other) && own.number == theirs.number) {
        ASSERT_EQ(own, theirs) << "processes " << member << " and " << other;
      }
    }
    if (!process.why_not().empty()) end(network, member);
    add(std::move(network));
  }

  static void end(Network& network, int member) {
    network.dead.insert(member);
    for (int other = 0; other < std::ssize(network.processes); ++other) {
      network.links.erase({other, member});
      if (other != member && !network.dead.contains(other)) network.ends.insert({other, member});
    }
  }

  static bool may_die(const Network& network) {
    return network.deaths_left > 0 && std::ssize(network.dead) + 1 < std::ssize(network.processes);
  }

  static void die(Network& network, int member) {
    --network.deaths_left;
    end(network, member);
  }

  // A message of the other, or behind them the end of its connection.
  bool hears(const Network& network, int member, int other) {
    Network next = network;
    if (const auto link = next.links.find({other, member}); link != next.links.end()) {
      const RegroupMessage message = link->second.front();
      link->second.erase(link->second.begin());
      if (link->second.empty()) next.links.erase(link);
      next.processes[member].receive(other, message);
    } else if (next.ends.erase({member, other}) > 0) {
      next.processes[member].lost(other, /*is_dead=*/true);
    } else {
      return false;
    }
    settle(std::move(next), member);
    return true;
  }

  bool turn(const Network& network) {
    bool has_turned = false;
    for (int member = 0; member < std::ssize(network.processes); ++member) {
      if (network.dead.contains(member)) continue;
      if (may_die(network)) {
        Network next = network;
        die(next, member);
        add(std::move(next));  // not a turn that must come
      }
      const Regroup& process = network.processes[member];
      if (process.has_guests() && process.group().number > network.vote) {
        Network next = network;
        next.vote = process.group().number;
        add(std::move(next));
        has_turned = true;
      }
      const bool must_stop = process.is_disturbed() || process.group().number <= network.vote;
      if (must_stop && !network.has_stopped.contains(member)) {
        Network next = network;
        next.has_stopped.insert(member);
        next.processes[member].ready(/*steps_done=*/10 + member % 2);
        settle(std::move(next), member);
        has_turned = true;
      }
      for (int other = 0; other < std::ssize(network.processes); ++other) {
        has_turned |= hears(network, member, other);
        if (!network.silences.contains({member, other}) || network.dead.contains(other)) continue;
        Network next = network;
        next.silences.erase({member, other});
        next.processes[member].lost(other, /*is_dead=*/false);
        settle(std::move(next), member);
      }
    }
    return has_turned;
  }

  std::set<std::pair<int, int>> cut_;
  std::set<Network> seen_;
  std::deque<const Network*> open_;
  std::size_t ends_ = 0;
};

// Whoever lives is in one group, which has nobody else.
void expect_all_living_go_on(const Network& network) {
  std::vector<int> living;
  for (int member = 0; member < std::ssize(network.processes); ++member) {
    if (!network.dead.contains(member)) living.push_back(member);
  }
  for (const int member : living) {
    const Regroup& process = network.processes[member];
    EXPECT_FALSE(process.is_waiting());
    EXPECT_FALSE(process.is_disturbed());
    EXPECT_EQ(process.group().members, living);
  }
}

TEST(Regroup, AnyDeathsAtAnyMomentLeaveTheLivingTogether) {
  for (const auto& [processes, deaths] : std::vector<std::pair<int, int>>{{2, 1}, {3, 1}, {3, 2}, {4, 1}, {4, 2}}) {
    Explorer explorer(processes, deaths);
    explorer.run(expect_all_living_go_on);
    EXPECT_GT(explorer.ends(), 0);
  }
}

TEST(Regroup, GuestsJoinWhoeverDiesAtAnyMoment) {
  for (const auto& [processes, deaths, guests] :
       std::vector<std::tuple<int, int, int>>{{1, 0, 1}, {1, 1, 1}, {2, 0, 2}, {2, 1, 1}, {2, 2, 1}, {3, 1, 1}}) {
    Explorer explorer(processes, deaths, {}, false, guests);
    explorer.run(expect_all_living_go_on);
    EXPECT_GT(explorer.ends(), 0);
  }
}

TEST(Regroup, OnlyTheCoordinatorAsksForAGuest) {
  const Group both{.number = 0, .members = {0, 1}};
  for (const int self : {0, 1}) {
    Regroup member(self, both);
    member.receive(2, {.kind = RegroupMessage::Kind::kReady, .steps_done = kNoState, .group = both});
    EXPECT_EQ(member.has_guests(), self == 0);
    EXPECT_FALSE(member.is_disturbed());
  }
}

TEST(Regroup, AGuestThatMissesAMemberOrIsMissedByOneGivesUp) {
  const Group both{.number = 0, .members = {0, 1}}, later{.number = 1, .members = {0, 1}};
  Regroup misses(2, both);
  misses.ready(kNoState);
  misses.lost(0, /*is_dead=*/false);
  EXPECT_THAT(misses.why_not(), testing::HasSubstr("process 0 of the run sends no heartbeats"));
  Regroup is_missed(2, both);
  is_missed.ready(kNoState);
  is_missed.receive(0, {.kind = RegroupMessage::Kind::kCommit, .group = later});
  is_missed.receive(1, {.kind = RegroupMessage::Kind::kLost, .number = 0, .member = 2});  // which has not heard of it
  EXPECT_THAT(is_missed.why_not(), testing::HasSubstr("go on without this one"));
}

// No two living processes go on in different groups.
void expect_one_group(const Network& network) {
  std::optional<Group> newest;
  for (int member = 0; member < std::ssize(network.processes); ++member) {
    const Regroup& process = network.processes[member];
    if (network.dead.contains(member) || process.is_waiting() || process.is_disturbed()) continue;
    if (process.group().number == 0) continue;
    if (!newest) newest = process.group();
    EXPECT_EQ(process.group(), *newest);
  }
}

std::set<std::pair<int, int>> both_ways(const std::set<std::pair<int, int>>& pairs) {
  std::set<std::pair<int, int>> both = pairs;
  for (const auto& [a, b] : pairs) both.insert({b, a});
  return both;
}

TEST(Regroup, AFalseSuspicionNeverMakesTwoGroups) {
  for (const auto& silences :
       std::vector<std::set<std::pair<int, int>>>{{{1, 0}}, {{0, 1}}, {{2, 0}}, {{2, 1}, {0, 2}}}) {
    Explorer explorer(3, /*deaths=*/1, silences);
    explorer.run(expect_one_group);
    EXPECT_GT(explorer.ends(), 0);
  }
}

TEST(Regroup, AFalseSuspicionOfAGuestOrByOneNeverMakesTwoGroups) {
  for (const auto& silences : std::vector<std::set<std::pair<int, int>>>{{{0, 2}}, {{2, 0}}, {{1, 2}}, {{0, 1}}}) {
    Explorer explorer(2, /*deaths=*/0, silences, /*are_cut_off=*/false, /*guests=*/1);
    explorer.run([](const Network& network) {
      expect_one_group(network);
      for (int member = 0; member < std::ssize(network.processes); ++member)
        EXPECT_TRUE(network.dead.contains(member) || !network.processes[member].is_waiting());
    });
    EXPECT_GT(explorer.ends(), 0);
  }
}

TEST(Regroup, OfTwoPartsOfANetworkAtMostOneGoesOn) {
  for (const auto& [processes, cut] : std::vector<std::pair<int, std::set<std::pair<int, int>>>>{
           {2, {{0, 1}}}, {3, {{0, 1}, {0, 2}}}, {3, {{0, 2}, {1, 2}}}}) {
    Explorer explorer(processes, /*deaths=*/0, both_ways(cut), /*are_cut_off=*/true);
    explorer.run(expect_one_group);
    EXPECT_GT(explorer.ends(), 0);
  }
}

}  // namespace
}  // namespace sluice::comm
