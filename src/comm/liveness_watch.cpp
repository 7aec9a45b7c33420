#include "comm/liveness_watch.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "comm/token.h"
#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using How = LostProcess::How;
using Kind = ControlMessage::Kind;

constexpr milliseconds kAcknowledgeTimeout{1000};  // for a neighbour to acknowledge a message
constexpr int kMostEvents = 1000;                  // per step, so that a flood of connections cannot delay heartbeats
constexpr milliseconds kSettling{200};             // after a pause: time to read the messages that arrived meanwhile

}  // namespace

LivenessWatch::LivenessWatch(World world, const LivenessOptions& options, int wake)
    : world_(std::move(world)),
      options_(options),
      wake_(wake),
      host_(host_name()),
      socket_(kLongestControlLine),
      clock_(2 * options.heartbeat_interval) {
  check(options.heartbeat_interval.count() > 0 && options.peer_timeout >= 3 * options.heartbeat_interval,
        "a peer timeout of at least three heartbeat intervals");
}

std::string LivenessWatch::open() {
  token_ = random_token();
  const int port = socket_.listen(world_.address);
  return concat(port, ' ', token_, ' ', host_);
}

void LivenessWatch::approach(const std::string& where) {
  std::istringstream words(where);
  int port = 0;
  if (!(words >> port >> token_ >> leader_))
    throw PeerError("rank 0 sent '", where, "' instead of its port; start all ranks with the same version of Sluice");
  socket_.connect(world_.address, port);
}

void LivenessWatch::check_clock() {
  const Nanoseconds paused = clock_.paused();
  now_ = clock_.pass();
  if (clock_.paused() != paused) ended_deadline_ = now_ + kSettling;
}

void LivenessWatch::step() {
  check_clock();
  socket_.wait(next_due() - now_, wake_);
  check_clock();
  for (int events = 0; events < kMostEvents; ++events) {
    const auto event = socket_.next();
    if (!event) break;
    check_clock();
    handle(*event);
    judge_ended();
  }
  judge_ended();
  judge_silent();
  drop_strangers();
  send_leave_when_due();
  send_heartbeat_when_due();
}

std::vector<int> LivenessWatch::missing() const {
  std::vector<bool> here(world_.size);
  here[world_.rank] = true;
  for (const auto& [connection, peer] : peers_) here[peer.rank] = true;
  std::vector<int> missing;
  for (int rank = 0; rank < world_.size; ++rank) {
    if (!here[rank]) missing.push_back(rank);
  }
  return missing;
}

void LivenessWatch::handle(const LineSocket::Event& event) {
  using What = LineSocket::Event::What;
  if (event.what == What::kOpened) return on_opened(event.connection);
  if (event.what == What::kEnded) return on_ended(event.connection);
  const auto message = ControlMessage::from_line(event.line);
  const auto peer = peers_.find(event.connection);
  if (peer == peers_.end()) return admit(event.connection, message);
  peer->second.last_message_at = now_;
  if (message) on_message(peer->first, peer->second, *message);
}

void LivenessWatch::on_opened(const Connection& connection) {
  if (leads()) {
    if (complete_) return socket_.close(connection);  // all processes are connected already
    strangers_[connection] = now_;
    return;
  }
  if (is_connected()) return socket_.close(connection);  // rank 0 was lost; a new connection changes nothing
  peers_[connection] = {.rank = 0, .host = leader_, .last_message_at = now_};
  send(connection, {.kind = Kind::kHello, .token = token_, .lost = {.rank = world_.rank, .host = host_}});
}

void LivenessWatch::on_ended(const Connection& connection) {
  strangers_.erase(connection);
  const auto peer = peers_.find(connection);
  if (peer == peers_.end()) return;
  peer->second.ended = true;
  ended_.push_back(connection);
}

void LivenessWatch::admit(const Connection& connection, const std::optional<ControlMessage>& hello) {
  strangers_.erase(connection);
  const std::vector<int> awaited = missing();
  const bool belongs = leads() && !lost_ && hello && hello->kind == Kind::kHello && are_equal(hello->token, token_) &&
                       std::ranges::find(awaited, hello->lost.rank) != awaited.end();
  if (!belongs) return socket_.close(connection);
  peers_[connection] = {.rank = hello->lost.rank, .host = hello->lost.host, .last_message_at = now_};
  if (awaited.size() == 1) welcome_all();
}

void LivenessWatch::welcome_all() {
  complete_ = true;
  for (const auto& [stranger, since] : strangers_) socket_.close(stranger);
  strangers_.clear();
  send_to_all({.kind = Kind::kWelcome}, nullptr);
}

void LivenessWatch::on_message(const Connection& connection, Peer& peer, const ControlMessage& message) {
  switch (message.kind) {
    case Kind::kHello:
    case Kind::kHeartbeat: return;
    case Kind::kWelcome: complete_ = true; return;
    case Kind::kLeave: peer.left = true; return send(connection, {.kind = Kind::kAcknowledged});
    case Kind::kAcknowledged: peer.acknowledged = true; return;
    case Kind::kLost: send(connection, {.kind = Kind::kAcknowledged}); return take_report(message.lost, peer);
  }
}

// Handles a neighbour's report. Rank 0 believes a process about itself and rank 0; others believe rank 0.
void LivenessWatch::take_report(const LostProcess& lost, Peer& from) {
  if (leads() && lost.rank != from.rank && lost.rank != world_.rank) return;
  if (from.rank == lost.rank) from.left = true;  // the end of its connection is not another loss
  report(lost, &from);
}

void LivenessWatch::report(LostProcess lost, const Peer* from) {
  if (lost_ || has_sent_leave_) return;
  acknowledge_deadline_ = now_ + kAcknowledgeTimeout;
  send_to_all({.kind = Kind::kLost, .lost = lost}, from);
  for (auto& [connection, peer] : peers_) peer.acknowledged = &peer == from || peer.left || peer.rank == lost.rank;
  if (lost.rank == world_.rank && lost.how == How::kHung) lost.how = How::kGivenUp;
  lost_ = std::move(lost);
}

void LivenessWatch::fail(const std::string& why, How how) {
  report({.rank = world_.rank, .host = host_, .how = how, .reason = why}, nullptr);
}

const LostProcess* LivenessWatch::lost() const { return lost_ && is_acknowledged() ? &*lost_ : nullptr; }

bool LivenessWatch::is_acknowledged() const {
  return now_ >= acknowledge_deadline_ ||
         std::ranges::all_of(peers_, [](const auto& entry) { return entry.second.acknowledged || entry.second.ended; });
}

void LivenessWatch::judge_ended() {
  // After a pause of this process, messages with the reason of an end may still be unread.
  if (now_ < ended_deadline_) return;
  for (const Connection& connection : std::exchange(ended_, {})) {
    const Peer& peer = peers_.at(connection);
    if (!peer.left) report({.rank = peer.rank, .host = peer.host, .how = How::kDead}, nullptr);
  }
}

// The peer may have become silent just after a heartbeat, so one interval is added.
LivenessWatch::Nanoseconds LivenessWatch::hung_at(const Peer& peer) const {
  return peer.last_message_at + options_.heartbeat_interval + options_.peer_timeout;
}

LivenessWatch::Nanoseconds LivenessWatch::next_due() const {
  Nanoseconds due = next_heartbeat_;
  if (lost_ || has_sent_leave_) return due;
  for (const auto& [connection, peer] : peers_) {
    if (!peer.left && !peer.ended) due = std::min(due, hung_at(peer));
  }
  return due;
}

void LivenessWatch::judge_silent() {
  for (const auto& [connection, peer] : peers_) {
    if (peer.left || peer.ended || now_ < hung_at(peer)) continue;
    return report(
        {.rank = peer.rank, .host = peer.host, .how = How::kHung, .reason = seconds_text(options_.peer_timeout)},
        nullptr);
  }
}

void LivenessWatch::drop_strangers() {
  std::erase_if(strangers_, [&](const auto& stranger) {
    const bool is_late = now_ - stranger.second >= options_.peer_timeout;
    if (is_late) socket_.close(stranger.first);
    return is_late;
  });
}

void LivenessWatch::leave() {
  if (is_leaving_) return;
  is_leaving_ = true;
  drain_deadline_ = now_ + options_.drain_timeout;
  send_leave_when_due();
}

bool LivenessWatch::all_left() const {
  return std::ranges::all_of(peers_, [](const auto& entry) { return entry.second.left; });
}

void LivenessWatch::send_leave_when_due() {
  if (!is_leaving_ || has_sent_leave_ || lost_) return;
  if (leads() && !all_left() && now_ < drain_deadline_) return;
  has_sent_leave_ = true;
  acknowledge_deadline_ = now_ + kAcknowledgeTimeout;
  for (auto& [connection, peer] : peers_) peer.acknowledged = peer.left;
  send_to_all({.kind = Kind::kLeave}, nullptr);
}

void LivenessWatch::send_heartbeat_when_due() {
  if (now_ < next_heartbeat_) return;
  next_heartbeat_ = now_ + options_.heartbeat_interval;
  if (!lost_ && !has_sent_leave_) send_to_all({.kind = Kind::kHeartbeat}, nullptr);
}

void LivenessWatch::send_to_all(const ControlMessage& message, const Peer* except) {
  const std::string line = message.to_line();
  for (const auto& [connection, peer] : peers_) {
    if (&peer != except && !peer.ended && !peer.left) socket_.send(connection, line);
  }
}

void LivenessWatch::send(const Connection& connection, const ControlMessage& message) {
  socket_.send(connection, message.to_line());
}

}  // namespace sluice::comm
