#include "comm/membership.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/wake_up.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/own_time.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrain{5000};  // for the others to leave
constexpr std::chrono::hours kForever{24 * 365};

constexpr auto kEnded = "its connection ended";

Group first_group(const World& world) {
  Group group;
  for (int rank = 0; rank < world.size; ++rank) group.members.push_back(rank);
  return group;
}

}  // namespace

class Membership::ControlThread {
 public:
  ControlThread(const World& world, const NoticeBoard& board, const LivenessOptions& options,
                std::function<void()> on_disturbed)
      : self_(world.rank),
        silence_(concat("was silent for ", seconds_text(options.peer_timeout))),
        on_disturbed_(std::move(on_disturbed)),
        mesh_(world, board, options, wake_up_.fd()),
        regroup_(world.rank, first_group(world)) {
    publish();
    thread_ = std::thread([this] { run(); });
  }

  ~ControlThread() {
    ask([this] { requests_.stop = true; });
    thread_.join();
  }

  [[nodiscard]] int self() const { return self_; }

  [[nodiscard]] bool wait_for_disturbance(milliseconds limit) {
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, limit, [&] { return known_.is_disturbed; });
    return known_.is_disturbed;
  }

  [[nodiscard]] std::vector<Loss> take_losses() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(losses_, {});
  }

  [[nodiscard]] Group regroup(std::int64_t steps_done) {
    ask([&] {
      requests_.ready = steps_done;
      known_.is_waiting = true;
    });
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, kForever, [&] { return !known_.is_waiting; });
    if (!known_.why_not.empty()) throw PeerError(known_.why_not);
    return known_.group;
  }

  void tell(const std::string& text) {
    ask([&] { requests_.text = text; });
  }

  [[nodiscard]] std::string hear() {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return texts_.contains(known_.group.number); };
    wait_own_time(changed_, lock, kForever, [&] { return is_there() || known_.is_disturbed; });
    if (!is_there()) throw PeerError("a process was lost while the others formed a new group");
    return texts_.at(known_.group.number);
  }

  void leave() {
    ask([this] { requests_.leave = true; });
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, kDrain, [&] { return known_.is_alone; });
  }

  void fail(const std::string& why) {
    ask([&] { requests_.failure = why; });
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, kDrain, [&] { return !requests_.failure; });
  }

 private:
  using Kind = MembershipMessage::Kind;

  struct Requests {
    bool stop = false, leave = false;
    std::optional<std::int64_t> ready;
    std::optional<std::string> text, failure;
  };
  // What the control thread last told the others.
  struct Known {
    Group group;
    bool is_disturbed = false, is_waiting = false, is_alone = false;
    std::string why_not;
  };

  template <typename Change>
  void ask(const Change& change) {
    {
      const std::scoped_lock lock(mutex_);
      change();
    }
    wake_up_.give();
  }

  void run() {
    try {
      for (;;) {
        for (const ControlMesh::Event& event : mesh_.step()) handle(event);
        wake_up_.take();
        if (!take_requests()) return;
        for (const auto& [to, message] : regroup_.take_outbox())
          mesh_.send(to, {.kind = Kind::kRegroup, .regroup = message});
        publish();
      }
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mutex_);
      known_ = {.group = known_.group,
                .is_disturbed = true,
                .why_not = concat("the control connections broke: ", error.what())};
      changed_.notify_all();
    }
  }

  // False: the thread ends.
  bool take_requests() {
    Requests requests;
    {
      const std::scoped_lock lock(mutex_);
      requests = std::exchange(requests_, {});
    }
    if (requests.stop) return false;
    if (requests.ready) regroup_.ready(*requests.ready);
    if (requests.text)
      mesh_.send_to_all({.kind = Kind::kText, .number = regroup_.group().number, .text = *requests.text});
    if (requests.failure) mesh_.send_to_all({.kind = Kind::kFailed, .text = *requests.failure});
    if (requests.leave) {
      is_leaving_ = true;
      mesh_.send_to_all({.kind = Kind::kLeave});
    }
    return true;
  }

  void publish() {
    if (regroup_.is_disturbed() && disturbed_group_ != regroup_.group().number && !is_leaving_) {
      disturbed_group_ = regroup_.group().number;
      on_disturbed_();
    }
    const std::scoped_lock lock(mutex_);
    known_ = {.group = regroup_.group(),
              .is_disturbed = regroup_.is_disturbed(),
              .is_waiting = requests_.ready || regroup_.is_waiting(),
              .is_alone = mesh_.is_alone(),
              .why_not = regroup_.why_not()};
    changed_.notify_all();
  }

  void handle(const ControlMesh::Event& event) {
    using What = ControlMesh::Event::What;
    switch (event.what) {
      case What::kEnded: return lose(event.member, kEnded, /*is_dead=*/true);
      case What::kSilent: return lose(event.member, silence_, /*is_dead=*/false);
      case What::kMessage: return receive(event.member, event.message);
    }
  }

  void receive(int from, const MembershipMessage& message) {
    if (message.kind == Kind::kFailed) lose(from, message.text, /*is_dead=*/true);
    if (message.kind == Kind::kText) {
      const std::scoped_lock lock(mutex_);
      texts_[message.number] = message.text;
    }
    if (message.kind != Kind::kRegroup) return;
    const RegroupMessage& regroup = message.regroup;
    if (regroup.kind == RegroupMessage::Kind::kLost && regroup.number == regroup_.group().number)
      note_loss(regroup.member, regroup.is_dead ? kEnded : silence_);
    regroup_.receive(from, regroup);
  }

  void lose(int member, const std::string& why, bool is_dead) {
    note_loss(member, why);
    regroup_.lost(member, is_dead);
  }

  void note_loss(int member, const std::string& why) {
    const bool is_news =
        member != self_ && !regroup_.is_gone(member) && std::ranges::binary_search(regroup_.group().members, member);
    if (!is_news) return;
    const std::scoped_lock lock(mutex_);
    losses_.push_back({member, mesh_.host_of(member), why, to_ms(mesh_.silence_of(member).count()), now_ns()});
  }

  const int self_;
  const std::string silence_;
  std::function<void()> on_disturbed_;
  WakeUp wake_up_;
  // Used only by the control thread once it runs:
  ControlMesh mesh_;
  Regroup regroup_;
  int disturbed_group_ = -1;  // number of the last group that on_disturbed_ was called for
  bool is_leaving_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  Requests requests_;
  Known known_;
  std::vector<Loss> losses_;
  std::map<int, std::string> texts_;  // [number of the group]: its leader's
  std::thread thread_;
};

Membership::Membership(const World& world, const NoticeBoard& board, const LivenessOptions& options,
                       std::function<void()> on_disturbed)
    : thread_(std::make_unique<ControlThread>(world, board, options, std::move(on_disturbed))) {}

Membership::~Membership() = default;

int Membership::self() const { return thread_->self(); }
bool Membership::is_disturbed() const { return wait_for_disturbance(milliseconds(0)); }
bool Membership::wait_for_disturbance(milliseconds limit) const { return thread_->wait_for_disturbance(limit); }
std::vector<Loss> Membership::take_losses() { return thread_->take_losses(); }
Group Membership::regroup(std::int64_t steps_done) { return thread_->regroup(steps_done); }
void Membership::tell(const std::string& text) { thread_->tell(text); }
std::string Membership::hear() { return thread_->hear(); }
void Membership::leave() { thread_->leave(); }
void Membership::fail(const std::string& why) { thread_->fail(why); }

}  // namespace sluice::comm
