#include "train/setup/peers.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"
#include "pipeline/failure.h"
#include "train/setup/agreement.h"

namespace sluice::train {
namespace {

using std::chrono::milliseconds;

// Ends any wait. A busy process may take long; heartbeats show that it lives, and it detects its own hanging step.
constexpr std::chrono::minutes kOperationTimeout{30};
constexpr milliseconds kConnect{20000};
// Time for this process to fail by itself after a loss. It is short after a hang, which has already been waited for.
constexpr milliseconds kGrace{10000};
constexpr milliseconds kGraceWhenHung{1000};
// Limit for each of two saves: one in progress at the loss, and one that the loss triggers.
constexpr milliseconds kLongestSave{60000};
// A backend may notice a lost process before the control connection does, and its error may arrive before the reason.
constexpr std::chrono::seconds kInquest{5};

milliseconds in_ms(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

milliseconds grace_after(comm::LostProcess::How how) {
  if (how == comm::LostProcess::How::kStopped) return milliseconds(0);
  return how == comm::LostProcess::How::kHung ? kGraceWhenHung : kGrace;
}

Error as_peer_error(const comm::LostProcess& lost) {
  if (lost.how == comm::LostProcess::How::kFailed) return PeerError(lost.describe());
  if (lost.how == comm::LostProcess::How::kStopped) return InterruptedError(lost.describe());
  return PeerError(lost.describe(), "; start all ranks again with --resume auto");
}

// Ends the process after kLongestSave even if a disk blocks the work before the end.
void end_later(const EndProcess& end_process, const Error& error) {
  try {
    std::thread([end_process, error] {
      (void)OwnLimit(kLongestSave).retry(kShortWait, [] { return false; });
      end_process(error);
    }).detach();
  } catch (const std::system_error&) {  // the process ends when the work before its end is done
  }
}

void log_meeting_point(const comm::World& world, double limit_s) {
  const std::string meeting_point = world.meeting_file.empty() ? concat("at ", world.address, ":", world.port)
                                                               : concat("through file ", world.meeting_file.string());
  if (world.rank == 0) {
    log_info("waiting for ", counted(world.size - 1, "other process"), " ", meeting_point, ", for at most ",
             human_duration(limit_s));
  } else {
    log_info("rank ", world.rank, " of ", world.size, ": connecting to rank 0 ", meeting_point);
  }
}

}  // namespace

void log_how_started(const comm::World& world) {
  if (!world.remark.empty()) log_warning(world.remark);
  if (world.rank == 0 && !world.launcher.empty())
    log_info(counted(world.size, "process"), ", according to ", world.launcher);
}

ProcessRank process_rank(const comm::World& world) {
  return {.rank = world.rank,
          .processes = world.size,
          .local_rank = std::max(world.local_rank, 0),
          .local_size = std::max(world.local_size, 1),
          .cores = world.cores,
          .spans_machines = world.spans_machines};
}

comm::LivenessOptions liveness_options(const config::Config& config) {
  return {.peer_timeout = in_ms(config.replicas.hang_timeout_s),
          .connect_timeout = std::min(in_ms(config.replicas.connect_timeout_s), kConnect)};
}

void send_failure_to_peers(const comm::World& world, const Error& why) {
  if (world.is_single()) return;
  try {
    const comm::Processes processes(world, {}, {.connect = kConnect, .operation = kConnect}, [&] { throw Error(why); });
  } catch (const std::exception&) {  // `why`, or no process is there to receive it
  }
}

Peers::Peers(Launch launch, const config::Config& config, const std::function<void()>& prepare)
    : launch_(std::move(launch)), stopper_(before_training_.watch([this](const InterruptedError& why) { stop(why); })) {
  const comm::World& world = launch_.world;
  if (world.is_single()) {
    prepare();
    return;
  }
  const comm::TimeLimits limits{.connect = in_ms(config.replicas.connect_timeout_s), .operation = kOperationTimeout};
  processes_.emplace(world, agreement_of(config, launch_.version), limits, [&] {
    prepare();
    log_meeting_point(world, config.replicas.connect_timeout_s);
  });
  process_ = process_rank(processes_->world());
  const comm::MeetingPoint meeting{.publish = [this](const std::string& text) { processes_->publish("control", text); },
                                   .look_up = [this] { return processes_->look_up("control"); }};
  const auto on_lost = [this](const comm::LostProcess& lost) {
    const std::scoped_lock lock(mutex_);
    lost_ = lost;
    changed_.notify_all();
  };
  liveness_ = std::make_unique<comm::Liveness>(processes_->world(), meeting, liveness_options(config), on_lost);
  watch_ = std::jthread([this](const std::stop_token& stop) { end_when_lost(stop); });
  together([this] { communicator_ = processes_->make_communicator("the processes of the run"); });
  log_info("rank ", world.rank, " of ", world.size, ": all processes are connected");
}

Peers::~Peers() {
  stopper_ = {};  // joins the thread
  watch_ = {};
  liveness_.reset();  // before the members that its callback uses are destroyed
}

nlohmann::ordered_json Peers::run(const std::function<nlohmann::ordered_json()>& body) {
  nlohmann::ordered_json result;
  std::optional<InterruptedError> interrupted;
  together([&] {
    try {
      result = body();
    } catch (const InterruptedError& error) {
      interrupted = error;
    }
    if (!is_alone()) part();
  });
  if (interrupted) throw InterruptedError(*interrupted);
  return result;
}

void Peers::together(const std::function<void()>& action) {
  if (is_alone()) return action();
  try {
    action();
  } catch (const InterruptedError&) {
    throw;
  } catch (const Error& error) {
    end(explain(error));
  } catch (...) {
    end(explain(pipeline::describe_failure(std::current_exception(), "training")));
  }
}

std::unique_lock<std::timed_mutex> Peers::hold() { return std::unique_lock(held_); }

void Peers::before_end(BeforeEnd act) {
  const std::scoped_lock lock(before_end_mutex_);
  before_end_ = std::move(act);
}

void Peers::part() {
  communicator_->barrier();
  {
    const std::scoped_lock lock(mutex_);
    has_parted_ = true;
  }
  liveness_->leave();
}

void Peers::stop(const InterruptedError& why) {
  if (liveness_) liveness_->stop(why.what());
  end(why);
}

void Peers::end(const Error& error, const comm::LostProcess* lost) {
  if (error.exit_code() == ExitCode::kInterrupted) before_training_.discard();
  {
    const std::scoped_lock lock(before_end_mutex_);
    if (before_end_) before_end_(lost);
  }
  launch_.end_process(error);
}

std::optional<comm::LostProcess> Peers::loss_behind(const Error& failure) {
  if (failure.exit_code() != ExitCode::kPeer) return std::nullopt;
  return liveness_->wait_for_lost(std::exchange(has_inquired_, true) ? std::chrono::seconds(0) : kInquest);
}

Error Peers::explain(const Error& failure) {
  if (const auto lost = loss_behind(failure)) return as_peer_error(*lost);
  liveness_->fail(failure.what());
  return failure;
}

void Peers::end_when_lost(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, stop, [this] { return lost_.has_value(); })) return;
  const milliseconds grace = grace_after(lost_->how);
  wait_own_time(changed_, lock, grace, [&] { return has_parted_ || stop.stop_requested(); });
  if (stop.stop_requested() || has_parted_) return;
  const comm::LostProcess lost = *lost_;
  lock.unlock();
  std::unique_lock held(held_, std::defer_lock);
  (void)OwnLimit(kLongestSave).retry(milliseconds(0), [&] { return held.try_lock_for(kShortWait); });
  const Error error = as_peer_error(lost);
  end_later(launch_.end_process, error);
  end(error, held.owns_lock() ? &lost : nullptr);
}

}  // namespace sluice::train
