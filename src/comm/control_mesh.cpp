#include "comm/control_mesh.h"

#include <algorithm>
#include <utility>

#include "comm/control_message.h"
#include "comm/socket_address.h"
#include "comm/token.h"
#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

constexpr std::chrono::milliseconds kAfterPause{200};  // time to read the messages that arrived in a pause
constexpr int kMostEventsOfStep = 1000;  // in a step, so that a flood of connections cannot delay heartbeats

constexpr auto kTokenKey = "mesh/token";
constexpr std::string_view kToLower = "to rank ";  // name of a connection that this process has opened
std::string address_key(int rank) { return concat("mesh/", rank); }

}  // namespace

ControlMesh::ControlMesh(const World& world, const NoticeBoard& board, const LivenessOptions& options, int wake)
    : world_(world),
      options_(options),
      wake_(wake),
      socket_(kLongestControlLine),
      clock_(2 * options.heartbeat_interval) {
  check(options.heartbeat_interval.count() > 0 && options.peer_timeout >= 3 * options.heartbeat_interval,
        "a peer timeout of at least three heartbeat intervals");
  const std::string address = address_of_process(world);
  board.put(address_key(world.rank), SocketAddress{address, socket_.listen(address)}.to_text());
  if (world.rank == 0) board.put(kTokenKey, random_token());
  token_ = board.get(kTokenKey);
  for (int rank = 0; rank < world.rank; ++rank) {
    const SocketAddress other = SocketAddress::from_text(board.get(address_key(rank)));
    socket_.connect_once(other.address, other.port, concat(kToLower, rank));
  }
  while (!missing().empty()) {
    for (const Event& event : step()) {
      if (event.what != Event::What::kMessage)
        throw PeerError("rank ", event.member, " was lost while the run started; see its log");
    }
    if (now_ < options_.connect_timeout) continue;
    throw PeerError(numbered("rank", missing()), " of ", world_.size, " did not open a control connection within ",
                    seconds_text(options_.connect_timeout),
                    "; see their logs, and check firewalls: each process listens on a random port");
  }
}

std::vector<int> ControlMesh::missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < world_.size; ++rank) {
    if (rank != world_.rank && !peers_.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

void ControlMesh::check_clock() {
  const Nanoseconds paused = clock_.paused();
  now_ = clock_.pass();
  if (clock_.paused() != paused) ended_deadline_ = now_ + kAfterPause;
}

std::vector<ControlMesh::Event> ControlMesh::step() {
  std::vector<Event> events;
  check_clock();
  socket_.wait(next_due() - now_, wake_);
  check_clock();
  for (int count = 0; count < kMostEventsOfStep; ++count) {
    const auto event = socket_.next();
    if (!event) break;
    check_clock();
    handle(*event, events);
  }
  judge(events);
  if (now_ >= next_beat_) {
    next_beat_ = now_ + options_.heartbeat_interval;
    send_to_all({.kind = MembershipMessage::Kind::kBeat});
  }
  return events;
}

void ControlMesh::handle(const LineSocket::Event& event, std::vector<Event>& events) {
  using What = LineSocket::Event::What;
  const Connection& connection = event.connection;
  const auto known = members_.find(connection);
  if (event.what == What::kOpened) {
    if (missing().empty()) return socket_.close(connection);
    strangers_[connection] = now_;
    if (connection.starts_with(kToLower)) greet(connection);
    return;
  }
  if (event.what == What::kEnded) {
    strangers_.erase(connection);
    if (known != members_.end()) peers_.at(known->second).has_ended = true;
    return;
  }
  auto message = MembershipMessage::from_line(event.line);
  if (known == members_.end()) return admit(connection, message);
  Peer& peer = peers_.at(known->second);
  peer.heard_at = now_;
  if (!message || message->kind == MembershipMessage::Kind::kBeat) return;
  if (message->kind == MembershipMessage::Kind::kLeave || message->kind == MembershipMessage::Kind::kFailed ||
      message->kind == MembershipMessage::Kind::kStopped)
    peer.has_left = true;
  events.push_back({Event::What::kMessage, known->second, std::move(*message)});
}

void ControlMesh::greet(const Connection& connection) {
  const MembershipMessage hello{
      .kind = MembershipMessage::Kind::kHello, .member = world_.rank, .token = token_, .text = host_name()};
  socket_.send(connection, hello.to_line());
}

void ControlMesh::admit(const Connection& connection, const std::optional<MembershipMessage>& hello) {
  strangers_.erase(connection);
  const std::vector<int> awaited = missing();
  const bool belongs = hello && hello->kind == MembershipMessage::Kind::kHello && are_equal(hello->token, token_) &&
                       std::ranges::find(awaited, hello->member) != awaited.end();
  if (!belongs) return socket_.close(connection);
  if (!connection.starts_with(kToLower)) greet(connection);  // it has proved that it belongs to the run
  members_[connection] = hello->member;
  peers_[hello->member] = {.connection = connection, .host = hello->text, .heard_at = now_};
}

// After a pause of this process, messages with the reason of an end may still be unread.
void ControlMesh::judge(std::vector<Event>& events) {
  for (auto& [member, peer] : peers_) {
    if (peer.has_left) continue;
    if (peer.has_ended && now_ >= ended_deadline_) {
      peer.has_left = true;
      events.push_back({Event::What::kEnded, member});
    } else if (!peer.has_ended && now_ >= hung_at(peer)) {
      events.push_back({Event::What::kSilent, member});
    }
  }
  std::erase_if(strangers_, [&](const auto& stranger) {
    const bool is_late = now_ - stranger.second >= options_.peer_timeout;
    if (is_late) socket_.close(stranger.first);
    return is_late;
  });
}

// The peer may have become silent just after a heartbeat, so one interval is added.
ControlMesh::Nanoseconds ControlMesh::hung_at(const Peer& peer) const {
  return peer.heard_at + options_.heartbeat_interval + options_.peer_timeout;
}

ControlMesh::Nanoseconds ControlMesh::next_due() const {
  Nanoseconds due = next_beat_;
  for (const auto& [member, peer] : peers_) {
    if (peer.has_left) continue;
    const Nanoseconds judged_at = peer.has_ended ? ended_deadline_ : hung_at(peer);
    if (judged_at > now_) due = std::min(due, judged_at);  // else it was judged before
  }
  return due;
}

int ControlMesh::connected() const {
  return static_cast<int>(std::ranges::count_if(
      peers_, [](const auto& entry) { return !entry.second.has_left && !entry.second.has_ended; }));
}

void ControlMesh::send(int member, const MembershipMessage& message) {
  const Peer& peer = peers_.at(member);
  if (!peer.has_ended) socket_.send(peer.connection, message.to_line());
}

void ControlMesh::send_to_all(const MembershipMessage& message) {
  for (const auto& [member, peer] : peers_) {
    if (!peer.has_left) send(member, message);
  }
}

}  // namespace sluice::comm
