#include "comm/liveness.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/liveness_watch.h"
#include "comm/wake_up.h"
#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "core/own_time.h"
#include "core/text.h"

namespace sluice::comm {

class Liveness::ControlThread {
 public:
  ControlThread(const World& world, const MeetingPoint& meeting, const LivenessOptions& options,
                std::function<void(const LostProcess&)> on_lost)
      : world_(world), options_(options), on_lost_(std::move(on_lost)), watch_(world, options, wake_up_.fd()) {
    if (world.rank == 0) {
      meeting.publish(watch_.open());
    } else {
      watch_.approach(meeting.look_up());
    }
    gather();
    thread_ = std::thread([this] { run(); });
  }

  ~ControlThread() {
    ask([](Requests& requests) { requests.stop = true; });
    thread_.join();
  }

  void leave() {
    ask([](Requests& requests) { requests.leave = true; });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ || lost_; });
  }

  void fail(const std::string& why, LostProcess::How how) {
    ask([&](Requests& requests) { requests.failure = {how, why}; });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ || lost_; });
  }

  std::optional<LostProcess> wait_for_lost(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, limit, [&] { return lost_.has_value(); });
    return lost_;
  }

 private:
  struct Requests {
    bool stop = false;
    bool leave = false;
    std::optional<std::pair<LostProcess::How, std::string>> failure;
  };

  template <typename Change>
  void ask(const Change& change) {
    {
      const std::scoped_lock lock(mutex_);
      change(requests_);
    }
    wake_up_.give();
  }

  void gather() {
    while (!watch_.is_complete()) {
      watch_.step();
      if (const LostProcess* lost = watch_.lost()) throw PeerError(describe_start(*lost));
      if (watch_.time() < options_.connect_timeout) continue;
      if (world_.rank == 0) {
        watch_.fail(concat(numbered("rank", watch_.missing()), " of ", world_.size,
                           " did not open a control connection within ", seconds_text(options_.connect_timeout),
                           "; see their logs"));
      } else if (!watch_.is_connected()) {
        throw PeerError("rank ", world_.rank, " cannot open a control connection to rank 0 at ", world_.address,
                        " within ", seconds_text(options_.connect_timeout),
                        "; rank 0 listens there on a random port: check firewalls");
      }
    }
  }

  [[nodiscard]] std::string describe_start(const LostProcess& lost) const {
    if (lost.how == LostProcess::How::kFailed && lost.rank == world_.rank) return lost.reason;
    if (lost.how == LostProcess::How::kDead && lost.rank == 0) {
      return concat("rank 0 (host ", lost.host, ") closed the control connection of rank ", world_.rank,
                    " while the run started; see its log");
    }
    return concat(lost.describe(), " while the run started");
  }

  void run() {
    try {
      while (true) {
        watch_.step();
        wake_up_.take();
        const Requests requests = take_requests();
        if (requests.stop) return;
        if (requests.failure) watch_.fail(requests.failure->second, requests.failure->first);
        if (requests.leave) watch_.leave();
        if (watch_.has_left()) report_left();
        if (const LostProcess* lost = watch_.lost()) report_lost(*lost);
      }
    } catch (const std::exception& error) {
      report_lost({world_.rank, host_name(), LostProcess::How::kFailed,
                   concat("its control connection broke: ", error.what())});
    }
  }

  Requests take_requests() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(requests_, {});
  }

  void report_left() {
    const std::scoped_lock lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

  void report_lost(const LostProcess& lost) {
    if (has_reported_loss_) return;
    has_reported_loss_ = true;
    const bool was_reported = lost.how == LostProcess::How::kFailed || lost.how == LostProcess::How::kStopped;
    if (!was_reported || lost.rank != world_.rank) on_lost_(lost);
    const std::scoped_lock lock(mutex_);
    lost_ = lost;
    changed_.notify_all();
  }

  World world_;
  LivenessOptions options_;
  std::function<void(const LostProcess&)> on_lost_;
  WakeUp wake_up_;
  LivenessWatch watch_;  // used only by the control thread once it runs
  bool has_reported_loss_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  Requests requests_;
  std::optional<LostProcess> lost_;
  bool left_ = false;

  std::thread thread_;
};

Liveness::Liveness(const World& world, const MeetingPoint& meeting, const LivenessOptions& options,
                   std::function<void(const LostProcess&)> on_lost) {
  if (!world.is_single()) thread_ = std::make_unique<ControlThread>(world, meeting, options, std::move(on_lost));
}

Liveness::~Liveness() = default;

void Liveness::leave() {
  if (thread_) thread_->leave();
}

void Liveness::fail(const std::string& why) {
  if (thread_) thread_->fail(why, LostProcess::How::kFailed);
}

void Liveness::stop(const std::string& why) {
  if (thread_) thread_->fail(why, LostProcess::How::kStopped);
}

std::optional<LostProcess> Liveness::wait_for_lost(std::chrono::milliseconds limit) const {
  return thread_ ? thread_->wait_for_lost(limit) : std::nullopt;
}

}  // namespace sluice::comm
