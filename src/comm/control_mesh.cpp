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

ControlMesh::ControlMesh(const World& world, const LivenessOptions& options, int wake)
    : options_(options), wake_(wake), socket_(kLongestControlLine), clock_(2 * options.heartbeat_interval) {
  check(options.heartbeat_interval.count() > 0 && options.peer_timeout >= 3 * options.heartbeat_interval,
        "a peer timeout of at least three heartbeat intervals");
  const std::string address = address_of_process(world);
  address_ = SocketAddress{address, socket_.listen(address)}.to_text();
}

ControlMesh::ControlMesh(const World& world, const NoticeBoard& board, const LivenessOptions& options, int wake)
    : ControlMesh(world, options, wake) {
  self_ = world.rank;
  board.put(address_key(self_), address_);
  if (self_ == 0) board.put(kTokenKey, random_token());
  token_ = board.get(kTokenKey);
  for (int rank = 0; rank < world.size; ++rank) {
    group_.members.push_back(rank);
    if (rank != self_) awaited_.insert(rank);
    if (rank < self_) connect_to(rank, board.get(address_key(rank)));
  }
  wait_for_all();
}

ControlMesh::ControlMesh(const World& world, const Invitation& invitation, const LivenessOptions& options, int wake)
    : ControlMesh(world, options, wake) {
  token_ = invitation.token;
  connect_to(kNobody, invitation.address);
  wait_for_all();
}

void ControlMesh::connect_to(int member, const std::string& address) {
  const SocketAddress other = SocketAddress::from_text(address);
  socket_.connect_once(other.address, other.port, concat(kToLower, member));
}

// What happens meanwhile is for the caller's first step().
void ControlMesh::wait_for_all() {
  const bool is_guest = self_ == kNobody;
  std::vector<Event> events;
  while (self_ == kNobody || !awaited_.empty()) {
    for (Event& event : step()) {
      if (self_ == kNobody && event.message.kind == MembershipMessage::Kind::kWelcome) take_welcome(event);
      if (!is_guest && event.what != Event::What::kMessage)
        throw PeerError("rank ", event.member, " was lost while the run started; see its log");
      events.push_back(std::move(event));
    }
    // Its number may be another one's, too. A view of a part of the run must not join.
    if (is_guest && was_refused_) throw PeerError("a process of the run refused the connection");
    if (now_ < options_.connect_timeout) continue;
    const std::vector<int> missing(awaited_.begin(), awaited_.end());
    throw PeerError(self_ == kNobody ? "the process at the meeting point"
                                     : concat(numbered("rank", missing), " of ", group_.members.size()),
                    " did not open a control connection within ", seconds_text(options_.connect_timeout),
                    "; see the logs, and check firewalls: each process listens on a random port");
  }
  early_ = std::move(events);
}

void ControlMesh::take_welcome(const Event& event) {
  self_ = event.message.member;
  group_ = event.message.regroup.group;
  for (const auto& [member, address] : event.message.addresses) {
    if (member == event.member) continue;
    awaited_.insert(member);
    connect_to(member, address);
  }
}

void ControlMesh::check_clock() {
  const Nanoseconds paused = clock_.paused();
  now_ = clock_.pass();
  if (clock_.paused() != paused) ended_deadline_ = now_ + kAfterPause;
}

std::vector<ControlMesh::Event> ControlMesh::step() {
  std::vector<Event> events = std::exchange(early_, {});
  check_clock();
  socket_.wait(events.empty() ? next_due() - now_ : Nanoseconds{0}, wake_);
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
    strangers_[connection] = now_;
    if (connection.starts_with(kToLower)) greet(connection);
    return;
  }
  if (event.what == What::kEnded) {
    strangers_.erase(connection);
    if (known != members_.end()) peers_.at(known->second).has_ended = true;
    was_refused_ |= known == members_.end() && connection.starts_with(kToLower);
    return;
  }
  auto message = MembershipMessage::from_line(event.line);
  if (known == members_.end()) return admit(connection, message, events);
  Peer& peer = peers_.at(known->second);
  peer.heard_at = now_;
  if (!message || message->kind == MembershipMessage::Kind::kBeat) return;
  if (message->kind == MembershipMessage::Kind::kLeave || message->kind == MembershipMessage::Kind::kFailed ||
      message->kind == MembershipMessage::Kind::kStopped)
    peer.has_left = true;
  events.push_back({Event::What::kMessage, known->second, std::move(*message)});
}

void ControlMesh::greet(const Connection& connection) {
  const MembershipMessage hello{.kind = MembershipMessage::Kind::kHello,
                                .member = self_,
                                .token = token_,
                                .text = host_name(),
                                .addresses = {{self_, address_}}};
  socket_.send(connection, hello.to_line());
}

int ControlMesh::number_for_guest() const { return std::max(self_, peers_.empty() ? 0 : peers_.rbegin()->first) + 1; }

void ControlMesh::admit(const Connection& connection, const std::optional<MembershipMessage>& hello,
                        std::vector<Event>& events) {
  strangers_.erase(connection);
  const bool belongs = hello && hello->kind == MembershipMessage::Kind::kHello && are_equal(hello->token, token_);
  const bool is_too_early = self_ == kNobody && !connection.starts_with(kToLower);  // this guest has no number yet
  if (!belongs || is_too_early) return socket_.close(connection);
  const int member = hello->member == kNobody ? number_for_guest() : hello->member;
  if (member == self_ || peers_.contains(member)) return socket_.close(connection);
  awaited_.erase(member);
  if (!connection.starts_with(kToLower)) greet(connection);
  members_[connection] = member;
  const auto address = hello->addresses.find(hello->member);
  peers_[member] = {.connection = connection,
                    .host = hello->text,
                    .address = address != hello->addresses.end() ? address->second : "",
                    .heard_at = now_};
  events.push_back({Event::What::kMessage, member, *hello});
}

void ControlMesh::welcome(int guest, const Regroup& regroup) {
  MembershipMessage message{
      .kind = MembershipMessage::Kind::kWelcome, .member = guest, .addresses = {{self_, address_}}};
  message.regroup.group = regroup.group();
  for (const auto& [member, peer] : peers_) {
    if (member != guest && !peer.has_ended && !peer.has_left && !regroup.is_gone(member))
      message.addresses[member] = peer.address;
  }
  send(guest, message);
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
  const auto peer = peers_.find(member);
  if (peer != peers_.end() && !peer->second.has_ended) socket_.send(peer->second.connection, message.to_line());
}

void ControlMesh::send_to_all(const MembershipMessage& message) {
  for (const auto& [member, peer] : peers_) {
    if (!peer.has_left) send(member, message);
  }
}

}  // namespace sluice::comm
