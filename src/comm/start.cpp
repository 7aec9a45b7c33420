#include "comm/start.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/machine_cores.h"
#include "comm/store.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "core/own_time.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kPoll{20};
constexpr milliseconds kHeartbeatInterval{1000};  // between two heartbeats of a rank that waits for others
constexpr milliseconds kPeerTimeout{10000};       // a waiting rank without heartbeats for this long is lost
constexpr milliseconds kDrainTimeout{2000};       // how long rank 0 stays, so that the others can read the refusal
// Far longer than one access to the store; after such a gap this process was stopped.
constexpr milliseconds kPause{2000};

constexpr auto kWorldKey = "world";  // rank 0's size and agreement, as JSON
constexpr auto kRefusalKey = "refusal";
constexpr auto kGoKey = "go";
std::string arrival_key(int rank) { return concat("arrived/", rank); }
std::string seen_key(int rank) { return concat("seen/", rank); }
std::string heartbeat_key(int rank) { return concat("beat/", rank); }  // increases while that process waits

std::string difference(const nlohmann::json& of_rank_0, const World& world, const Agreement& own) {
  if (of_rank_0.at("size") != world.size) {
    return concat("rank ", world.rank, " was started for ", counted(world.size, "process"), ", rank 0 for ",
                  of_rank_0.at("size").dump(), "; start all with the same world size");
  }
  const Agreement theirs = of_rank_0.at("agreement");
  const auto found = first_disagreement(own, theirs);
  if (!found) return {};
  return concat(found->key, " is ", found->one, " in rank ", world.rank, ", but ", found->other,
                " in rank 0; make them equal");
}

class Start {
 public:
  Start(c10d::Store& store, const World& world, milliseconds limit)
      : store_(store), world_(world), limit_(limit), deadline_(limit) {}

  // The note of a run that goes on, as in follow().
  [[nodiscard]] std::optional<std::string> lead(const Agreement& agreement) {
    put(cores_key(0), own_cores());
    const nlohmann::json of_rank_0{{"size", world_.size}, {"agreement", agreement}};
    put(kWorldKey, of_rank_0.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::vector<int> missing;
    for (int rank = 1; rank < world_.size; ++rank) missing.push_back(rank);
    while (!missing.empty()) {
      std::erase_if(missing, [&](int rank) { return store_.check({cores_key(rank)}); });
      if (store_.check({kRefusalKey})) {
        const Error refusal = read_refusal();
        drain();
        throw refusal;
      }
      if (missing.empty()) break;
      if (store_.check({kDoorKey})) {
        drain();
        return text_in(store_, kDoorKey);
      }
      if (const auto lost = silent_rank(missing)) {
        give_up(concat("rank ", *lost, " connected to ", world_.address, ":", world_.port,
                       ", but sent no heartbeat for ", seconds_text(kPeerTimeout),
                       "; see its log, then start all ranks again"));
      }
      if (time_.pass() > deadline_) give_up(describe_missing(missing));
      std::this_thread::sleep_for(kPoll);
    }
    put(kGoKey, "go");
    return std::nullopt;
  }

  [[nodiscard]] std::optional<std::string> follow(const Agreement& agreement) {
    wait_for({kWorldKey, kRefusalKey, kDoorKey});
    if (const auto note = door_note()) return note;
    if (store_.check({kRefusalKey})) throw_refusal();
    const auto of_rank_0 = nlohmann::json::parse(text_in(store_, kWorldKey));
    std::string refusal = difference(of_rank_0, world_, agreement);
    if (refusal.empty() && store_.add(arrival_key(world_.rank), 1) > 1)
      refusal = concat("two processes were started as rank ", world_.rank, "; give each a rank of its own",
                       world_.is_hosted ? " (after a restart by torchrun: see docs/how-to/launch.md)" : "");
    if (!refusal.empty()) {
      refuse(ExitCode::kUsage, refusal);
      throw ConfigError(refusal);
    }
    put(cores_key(world_.rank), own_cores());
    deadline_ += limit_;  // rank 0 may have begun to wait later than this rank
    wait_for({kGoKey, kRefusalKey, kDoorKey});
    if (store_.check({kGoKey})) return std::nullopt;
    if (const auto note = door_note()) return note;
    throw_refusal();
  }

  void fail(const std::string& why) {
    refuse(ExitCode::kPeer, concat("rank ", world_.rank, " (host ", host_name(), ") failed: ", why));
    if (world_.rank == 0 && !world_.is_hosted) drain();
  }

 private:
  void put(const std::string& key, const std::string& text) { put_text(store_, key, text); }

  [[nodiscard]] std::string own_cores() const { return cores_of_this_process(world_.local_rank).to_text(); }

  [[nodiscard]] std::optional<std::string> door_note() {
    if (!store_.check({kDoorKey})) return std::nullopt;
    std::string note = text_in(store_, kDoorKey);
    put(seen_key(world_.rank), "seen");  // rank 0 may wait for it
    return note;
  }

  // Stores why the run does not start, and the exit code of all ranks that do not fail by themselves.
  void refuse(ExitCode code, const std::string& why) {
    if (world_.rank != 0) put(seen_key(world_.rank), "seen");
    put(kRefusalKey, concat(static_cast<int>(code), " ", why));
  }
  [[noreturn]] void throw_refusal() {
    const Error theirs = read_refusal();
    put(seen_key(world_.rank), "seen");
    throw theirs;
  }
  [[nodiscard]] Error read_refusal() {
    std::istringstream text(text_in(store_, kRefusalKey));
    int code = 0;
    std::string why;
    std::getline(text >> code >> std::ws, why, '\0');
    return Error(static_cast<ExitCode>(code), why);
  }
  [[noreturn]] void give_up(const std::string& why) {
    refuse(ExitCode::kPeer, why);
    drain();
    throw PeerError(why);
  }

  [[nodiscard]] std::optional<int> silent_rank(const std::vector<int>& missing) {
    const nanoseconds now = time_.pass();
    if (now < next_look_) return std::nullopt;
    next_look_ = now + kHeartbeatInterval;
    for (int rank = 1; rank < world_.size; ++rank) {
      if (std::ranges::find(missing, rank) != missing.end()) continue;
      const std::int64_t heartbeats = store_.add(heartbeat_key(rank), 0);
      const auto [last, is_new] = last_heartbeats_.try_emplace(rank, heartbeats, now);
      if (last->second.first != heartbeats) last->second = {heartbeats, now};
      if (now - last->second.second > kPeerTimeout) return rank;
    }
    return std::nullopt;
  }

  void send_heartbeat() {
    const nanoseconds now = time_.pass();
    if (now < next_look_) return;
    next_look_ = now + kHeartbeatInterval;
    store_.add(heartbeat_key(world_.rank), 1);
  }

  void wait_for(const std::vector<std::string>& any_of) {
    while (std::ranges::none_of(any_of, [&](const std::string& key) { return store_.check({key}); })) {
      send_heartbeat();
      if (time_.pass() > deadline_) {
        throw PeerError("rank 0 at ", world_.address, ":", world_.port, " did not start the run within ",
                        seconds_text(limit_), "; see its log");
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

  [[nodiscard]] std::string describe_missing(const std::vector<int>& missing) const {
    return concat(numbered("rank", missing), " of ", world_.size, " did not connect to ", world_.address, ":",
                  world_.port, " within ", seconds_text(limit_), "; start every rank, all with the same ",
                  world_.address_settings.host, " and port");
  }

  void drain() {
    const nanoseconds end = time_.pass() + kDrainTimeout;
    for (int rank = 1; rank < world_.size; ++rank) {
      while (!store_.check({seen_key(rank)}) && time_.pass() < end) std::this_thread::sleep_for(kPoll);
    }
  }

  c10d::Store& store_;
  const World& world_;
  milliseconds limit_;
  OwnTime time_{kPause};
  nanoseconds deadline_;  // by time_, as are next_look_ and last_heartbeats_
  nanoseconds next_look_{0};
  std::map<int, std::pair<std::int64_t, nanoseconds>>
      last_heartbeats_;  // [rank]: its count of heartbeats, and when it last increased
};

}  // namespace

std::string cores_key(int rank) { return concat("ready/", rank); }

std::optional<std::string> start_together(c10d::Store& store, const World& world, const Agreement& agreement,
                                          milliseconds limit) {
  Start start(store, world, limit);
  return world.rank == 0 ? start.lead(agreement) : start.follow(agreement);
}

void fail_start(c10d::Store& store, const World& world, const std::string& why) {
  Start(store, world, kDrainTimeout).fail(why);
}

}  // namespace sluice::comm
