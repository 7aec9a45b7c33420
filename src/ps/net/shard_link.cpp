#include "ps/net/shard_link.h"

#include <algorithm>
#include <variant>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::ps {
namespace {

constexpr Nanoseconds kGreeting = 50'000'000;  // between two greetings
// Heartbeats and answers arrive in order, however large. After this many heartbeats without an answer it was lost.
constexpr std::int64_t kHeartbeatsOfALoss = 2;

}  // namespace

ShardLink::ShardLink(ShardLinkOptions options)
    : options_(std::move(options)),
      process_id_(unique_name()),
      socket_(FrameSocket::Role::kConnecting, process_id_, kFromServers, options_.keys) {
  socket_.connect(options_.host, options_.port);
}

void ShardLink::load(const ShardsState& state, std::int64_t version) {
  wait_for([this] { return here_.has_value(); }, [] {});
  const Frames frames =
      with_state(header_of(ShardsLoaded{options_.run, version, options_.assignment, names_of(state.optimizer)}), state);
  const auto send = [&] {
    here_.reset();
    socket_.send({}, frames);
  };
  send();
  wait_for([&] { return here_ && here_->run == options_.run && here_->version == version; }, send);
  process_of_shards_ = here_->process_id;
  version_ = version;
  last_steps_.clear();
}

void ShardLink::resume(std::int64_t version) {
  wait_for([this] { return here_.has_value(); }, [] {});
  version_ = version;
  check_came_back(*here_);
  process_of_shards_ = here_->process_id;
  const std::vector<StepAsked> steps = last_steps_;  // a copy, because committed() changes last_steps_
  for (const StepAsked& step : steps) {
    commit(step.step, step.update);
    committed();
  }
}

void ShardLink::check_came_back(const ShardsHere& here) const {
  const bool misses_last = here.version == version_ - 1 && !last_steps_.empty();
  const bool is_beyond = here.version == version_ + 1 && asked_ && asked_->commits;
  if (here.run == options_.run && (here.version == version_ || misses_last || is_beyond)) return;
  const std::string has = here.run.empty()           ? "no shards"
                          : here.run != options_.run ? "the shards of another run"
                                                     : concat("its shards after update ", here.version);
  throw CheckpointError(
      concat(named(), " has ", has, ", but the run is at update ", version_, "; ", options_.find_kept));
}

void ShardLink::prepare(const ShardStep& step) {
  asked_ = {.step = step};
  prepared_.reset();
  send(*asked_);
}

Prepared ShardLink::prepared() {
  wait_for([this] { return prepared_.has_value(); }, [this] { send(*asked_); });
  return *prepared_;
}

void ShardLink::remember(const ShardStep& step, const ShardUpdate& update) {
  if (step.index == 0) last_steps_.clear();
  last_steps_.push_back({.commits = true, .step = step, .update = update});
}

void ShardLink::commit(const ShardStep& step, const ShardUpdate& update) {
  asked_ = {.commits = true, .step = step, .update = update};
  is_committed_ = false;
  send(*asked_);
}

void ShardLink::committed() {
  wait_for([this] { return is_committed_; }, [this] { send(*asked_); });
  const StepAsked done = *std::exchange(asked_, std::nullopt);
  remember(done.step, done.update);
  if (done.step.is_last()) version_ = done.step.version;
}

void ShardLink::ask_for_state() {
  state_.reset();
  state_asked_ = {version_, std::exchange(begins_log_, false)};
  send(state_asked_);
}

ShardsState ShardLink::state() {
  wait_for([this] { return state_.has_value(); }, [this] { send(state_asked_); });
  return *std::exchange(state_, std::nullopt);
}

void ShardLink::send_worker(const WorkerThere& there) {
  workers_[there.worker] = there;
  // All workers follow the answer to the greeting, counted from 0. One sent now could hide a lost one.
  if (is_greeting_) return;
  ++sent_workers_;
  send(there);
}

void ShardLink::send_workers_again() {
  sent_workers_ = 0;
  for (const auto& [worker, there] : std::exchange(workers_, {})) send_worker(there);
}

PartState ShardLink::part_state(const PushKey& push) const {
  const auto found = held_.find(push.worker);
  if (found == held_.end() || found->second.push != push) return PartState::kMissing;
  return found->second.is_finite ? PartState::kFinite : PartState::kNotFinite;
}

void ShardLink::wait_for(const std::function<bool()>& condition, const std::function<void()>& ask_again) {
  std::int64_t asked_at = heartbeats_;
  while (true) {
    look();
    if (condition()) return;
    if (options_.is_stopped()) throw InterruptedError("stopped by a signal");
    if (while_waiting_) while_waiting_();
    if (heartbeats_ - asked_at >= kHeartbeatsOfALoss) {
      ask_again();
      asked_at = heartbeats_;
    }
    socket_.wait(std::chrono::nanoseconds(std::max<Nanoseconds>(next_heartbeat_ - clock_.now(), 0)));
  }
}

void ShardLink::look() {
  try {
    receive_all();
  } catch (const Error&) {
    is_lost_ = true;
    throw;
  }
  if (clock_.now() < next_heartbeat_) return;
  next_heartbeat_ =
      clock_.now() + (is_greeting_ ? std::min(options_.heartbeat_interval, kGreeting) : options_.heartbeat_interval);
  if (is_greeting_)
    send(LeadHello{kProtocol, greeting_, process_id_, options_.where, options_.agreement, options_.assignment});
  else
    send(LeadHeartbeat{greeting_, sent_workers_});
}

void ShardLink::receive_all() {
  while (const auto received = socket_.next()) on_message(received->frames);
  const bool is_new = process_of_shards_.empty() && !here_;
  const Nanoseconds limit = is_new ? options_.connect_timeout : options_.peer_timeout;
  if (clock_.now() - last_message_at_ <= limit) return;
  const std::string time = human_duration(to_s(limit));
  throw PeerError(is_new ? concat(named(), " has not answered within ", time, "; ", options_.start,
                                  ", or check its address", about_keys(options_.keys))
                         : concat(named(), " has been silent for ", time, "; ", options_.start_anew));
}

void ShardLink::on_message(const Frames& frames) {
  const auto message = shards_to_lead(frames.front());
  if (!message) return;
  last_message_at_ = clock_.now();
  std::visit(
      HandlerOf{[&](const ShardsHere& here) { on_shards_here(here); },
                [&](const ShardsRefuse& refuse) { throw ConfigError(named(), " refuses server 0: ", refuse.what); },
                [&](const StepPrepared& prepared) { on_prepared(prepared); },
                [&](const StepCommitted& committed) { on_committed(committed); },
                [&](const StepLacking& lacking) {
                  throw PeerError(named(), " cannot make update ", lacking.version,
                                  ": it lacks a push, or the previous update; ", options_.start_anew);
                },
                [&](const PartHeld& held) { held_[held.push.worker] = held; },
                [&](const StateGiven& given) { on_state_given(given, frames); },
                [&](const ShardHeartbeat& heartbeat) { on_heartbeat(heartbeat); },
                [&](const WhoLeads&) { restart_greeting(); }, [&](const ShardsFailed& failed) { on_failed(failed); }},
      *message);
}

void ShardLink::on_shards_here(const ShardsHere& here) {
  if (here.greeting != greeting_) return;  // answers an earlier greeting, so it lacks what was sent since
  const bool was_greeting = std::exchange(is_greeting_, false);
  here_ = here;
  if (process_of_shards_.empty()) return;
  if (here.process_id != process_of_shards_) {
    if (!options_.may_come_back)
      throw PeerError(named(), " was started again and has lost its shards; ", options_.start_anew,
                      "; ps.log would have kept them");
    check_came_back(here);
    process_of_shards_ = here.process_id;
    log_info(named(), " has come back, with its shards after update ", here.version);
    for (const StepAsked& step : last_steps_) send(step);  // repeating a step is harmless
    if (asked_) send(*asked_);
  }
  if (was_greeting) send_workers_again();
}

void ShardLink::on_prepared(const StepPrepared& prepared) {
  if (!asked_ || asked_->commits || prepared.version != asked_->step.version || prepared.index != asked_->step.index)
    return;
  prepared_ = {prepared.squares, prepared.is_finite};
}

void ShardLink::on_committed(const StepCommitted& committed) {
  if (asked_ && asked_->commits && committed.version == asked_->step.version && committed.index == asked_->step.index)
    is_committed_ = true;
}

void ShardLink::on_state_given(const StateGiven& given, const Frames& frames) {
  if (given.version != state_asked_.version) return;
  auto state = state_after_header(frames, options_.assignment.shape(), given.states);
  if (!state) throw PeerError(named(), " has sent shards of another model");
  state_ = std::move(*state);
}

void ShardLink::on_heartbeat(const ShardHeartbeat& heartbeat) {
  ++heartbeats_;
  const bool is_another = !process_of_shards_.empty() && heartbeat.process_id != process_of_shards_;
  if (is_another || !heartbeat.is_up_to_date) restart_greeting();
}

void ShardLink::restart_greeting() {
  if (!std::exchange(is_greeting_, true)) ++greeting_;
}

void ShardLink::on_failed(const ShardsFailed& failed) {
  const std::string what = concat(named(), " has failed: ", failed.what);
  if (failed.code != static_cast<std::int64_t>(ExitCode::kInterrupted)) throw PeerError(what);
  why_to_stop_ = concat(named(), " was ", failed.what);
}

}  // namespace sluice::ps
