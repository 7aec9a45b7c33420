#include "train/serve/server_thread.h"

#include "core/concat.h"
#include "core/log.h"
#include "device/cpu_threads.h"
#include "pipeline/failure.h"
#include "train/serve/server_events.h"
#include "train/setup/server_settings.h"
#include "train/setup/stop_signal.h"

namespace sluice::train {
namespace {

constexpr int kMostStates = 2;                  // limit of queued copies of the weights
constexpr Nanoseconds kServeFor = 100'000'000;  // until the next check for signals

std::optional<Error> failure_of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (...) {
    return pipeline::describe_failure(std::current_exception(), "the parameter server");
  }
}

}  // namespace

void ServerThread::start(ps::NetworkServer& network, TakeState take_state) {
  network_ = &network;
  take_state_ = std::move(take_state);
  thread_ = std::thread([this] { serve(); });
}

void ServerThread::stop() {
  must_stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void ServerThread::serve() {
  device::use_cpu_threads(1);  // the server's shards already run in parallel
  ps::Over over;
  std::optional<Error> failure = failure_of([&] { over = serve_until_over(); });
  if (failure || over.code == static_cast<std::int64_t>(ExitCode::kInterrupted)) {
    const std::string why = failure ? failure->what() : over.what;
    const auto lost = failure_of([&] { last_state_ = take_state_(failure); });
    if (lost) failure = lost->with_context(concat(why, ", and saving the state of the servers failed"));
  }
  if (!failure) failure = failure_of([&] { network_->end(over); });
  try {
    if (failure) network_->end(ending_of(*failure));
    while (!network_->is_over()) hand_over(network_->next(kServeFor));
  } catch (const std::exception& error) {  // the workers notice the missing heartbeats
    log_warning(error.what());
  }
  log_malformed(network_->malformed());
  {
    const std::scoped_lock lock(mutex_);
    failure_ = failure;
    has_ended_ = true;
    changed_.notify_all();
  }
  if (!failure) keep_alive_for_others();
}

// Needed because the loop may evaluate for longer than another server's peer timeout.
void ServerThread::keep_alive_for_others() {
  try {
    while (!must_stop_ && network_->keep_alive_for_others(kServeFor)) {
    }
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

ps::Over ServerThread::serve_until_over() {
  try {
    while (!network_->is_over()) {
      if (StopSignal::requested()) return ending_of(it_was_stopped());
      if (must_stop_) return ending_of(it_has_failed());
      hand_over(network_->next(kServeFor));
    }
  } catch (const ps::AllWorkersLeft&) {
    if (!StopSignal::requested()) throw;
    return ending_of(it_was_stopped());  // the workers were stopped by the same signal
  }
  return {};
}

void ServerThread::hand_over(std::optional<ps::NetworkUpdate> update) {
  if (!update) return;
  const std::scoped_lock lock(mutex_);
  if (update->state) ++states_;
  made_.push_back({std::move(*update), std::exchange(events_, {})});
  changed_.notify_all();
}

void ServerThread::on_event(const ps::WorkerEvent& event) {
  log_event(event);
  const std::scoped_lock lock(mutex_);
  events_.push_back(event);
}

// False if the loop is far behind, because more copies would fill the memory.
bool ServerThread::wants_state(const ps::ServerProgress& before, const ps::ServerProgress& after) {
  const config::Config& config = setup_.config;
  const auto is_multiple = [&](std::int64_t of) { return of > 0 && after.version % of == 0; };
  const bool evaluates = config.train.eval_every_steps > 0 ? is_multiple(config.train.eval_every_steps)
                                                           : ends_epoch(before, after, setup_.train_set->size());
  {
    const std::scoped_lock lock(mutex_);
    if (states_ >= kMostStates) return false;
  }
  return evaluates || is_multiple(config.checkpoint.every_steps) || wants_state_.exchange(false);
}

std::optional<ServerThread::MadeUpdate> ServerThread::wait_for_update() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !made_.empty() || has_ended_; });
  if (made_.empty()) return std::nullopt;
  MadeUpdate made = std::move(made_.front());
  made_.pop_front();
  if (made.update.state) --states_;
  return made;
}

void ServerThread::complete_newest(const std::function<void(ps::NetworkUpdate&)>& complete) {
  const std::scoped_lock lock(mutex_);
  if (made_.empty()) return;
  ps::NetworkUpdate& update = made_.back().update;
  if (update.state) --states_;
  complete(update);
  if (update.state) ++states_;
}

std::vector<ps::WorkerEvent> ServerThread::take_events() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(events_, {});
}

std::optional<Error> ServerThread::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

}  // namespace sluice::train
