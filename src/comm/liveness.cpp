#include "comm/liveness.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/liveness_watch.h"
#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

// Ends the wait of a thread that polls fd().
class WakeUp {
 public:
  WakeUp() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw PeerError("cannot make an event descriptor; raise the limit on open files (ulimit -n)");
  }
  ~WakeUp() { ::close(fd_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  void give() const {
    const std::uint64_t one = 1;
    check(::write(fd_, &one, sizeof one) == sizeof one, "an event can be counted");
  }
  void take() const {
    std::uint64_t count = 0;
    (void)!::read(fd_, &count, sizeof count);  // nothing to take is no error
  }

 private:
  int fd_;
};

std::string names_of(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(names, ", "));
}

std::string seconds(std::chrono::milliseconds limit) {
  return concat(static_cast<double>(limit.count()) / 1000.0, " s");
}

}  // namespace

class Liveness::ControlThread {
 public:
  ControlThread(const World& world, const MeetingPoint& meeting, const LivenessOptions& options,
                std::function<void(const Loss&)> on_loss)
      : world_(world), options_(options), on_loss_(std::move(on_loss)), watch_(world, options, wake_up_.fd()) {
    if (world.rank == 0) {
      meeting.publish(watch_.open());
    } else {
      watch_.approach(meeting.look_up());
    }
    gather();
    thread_ = std::thread([this] { run(); });
  }

  ~ControlThread() {
    ask([](Wishes& wishes) { wishes.stop = true; });
    thread_.join();
  }

  void leave() {
    ask([](Wishes& wishes) { wishes.leave = true; });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ || loss_; });
  }

  void fail(const std::string& why) {
    ask([&](Wishes& wishes) { wishes.failure = why; });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ || loss_; });
  }

  std::optional<Loss> wait_for_loss(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return loss_.has_value(); });
    return loss_;
  }

 private:
  // What the other threads want of this one.
  struct Wishes {
    bool stop = false;
    bool leave = false;
    std::optional<std::string> failure;
  };

  template <typename Change>
  void ask(const Change& change) {
    {
      const std::scoped_lock lock(mutex_);
      change(wishes_);
    }
    wake_up_.give();
  }

  // The caller's thread, before there is a control thread: until every process is connected.
  void gather() {
    while (!watch_.is_complete()) {
      watch_.step();
      if (const Loss* loss = watch_.loss()) throw PeerError(describe_start(*loss));
      if (watch_.time() < options_.connect) continue;
      if (world_.rank == 0) {
        watch_.fail(concat(names_of(watch_.missing()), " of ", world_.size,
                           " did not open a control connection within ", seconds(options_.connect),
                           "; see what they say"));
      } else if (!watch_.is_connected()) {
        throw PeerError(concat("rank ", world_.rank, " cannot open a control connection to rank 0 at ", world_.address,
                               " within ", seconds(options_.connect),
                               "; rank 0 listens on a free port of its own there: check firewalls"));
      }
    }
  }

  [[nodiscard]] std::string describe_start(const Loss& loss) const {
    if (loss.how == Loss::How::kFailed && loss.rank == world_.rank) return loss.reason;
    if (loss.how == Loss::How::kDead && loss.rank == 0) {
      return concat("rank 0 (host ", loss.host, ") closed the control connection of rank ", world_.rank,
                    " while the run started; see what it says");
    }
    return concat(loss.describe(), " while the run started");
  }

  void run() {
    try {
      while (true) {
        watch_.step();
        wake_up_.take();
        const Wishes wishes = take_wishes();
        if (wishes.stop) return;
        if (wishes.failure) watch_.fail(*wishes.failure);
        if (wishes.leave) watch_.leave();
        if (watch_.has_left()) tell_left();
        if (const Loss* loss = watch_.loss()) tell_loss(*loss);
      }
    } catch (const std::exception& error) {
      tell_loss({world_.rank, "this one", Loss::How::kFailed, concat("its control connection broke: ", error.what())});
    }
  }

  Wishes take_wishes() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(wishes_, {});
  }

  void tell_left() {
    const std::scoped_lock lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

  void tell_loss(const Loss& loss) {
    if (has_told_loss_) return;
    has_told_loss_ = true;
    const bool is_own_failure = loss.how == Loss::How::kFailed && loss.rank == world_.rank;
    if (!is_own_failure) on_loss_(loss);
    const std::scoped_lock lock(mutex_);
    loss_ = loss;
    changed_.notify_all();
  }

  World world_;
  LivenessOptions options_;
  std::function<void(const Loss&)> on_loss_;
  WakeUp wake_up_;
  LivenessWatch watch_;         // the control thread's, once there is one
  bool has_told_loss_ = false;  // the control thread's

  std::mutex mutex_;
  std::condition_variable changed_;
  Wishes wishes_;
  std::optional<Loss> loss_;
  bool left_ = false;

  std::thread thread_;
};

Liveness::Liveness(const World& world, const MeetingPoint& meeting, const LivenessOptions& options,
                   std::function<void(const Loss&)> on_loss) {
  if (!world.is_single()) thread_ = std::make_unique<ControlThread>(world, meeting, options, std::move(on_loss));
}

Liveness::~Liveness() = default;

void Liveness::leave() {
  if (thread_) thread_->leave();
}

void Liveness::fail(const std::string& why) {
  if (thread_) thread_->fail(why);
}

std::optional<Loss> Liveness::wait_for_loss(std::chrono::milliseconds limit) const {
  return thread_ ? thread_->wait_for_loss(limit) : std::nullopt;
}

}  // namespace sluice::comm
