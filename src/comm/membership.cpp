#include "comm/membership.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
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
constexpr milliseconds kAcknowledge{1000};
constexpr std::chrono::minutes kLongestStop{30};  // for the others to stop training: a step may be long

constexpr auto kEnded = "its connection ended";
constexpr auto kOutOfReach = "the others could not connect to it";

}  // namespace

class Membership::ControlThread {
 public:
  // Contact: NoticeBoard or Invitation.
  template <typename Contact>
  ControlThread(const World& world, const Contact& contact, const LivenessOptions& options,
                std::function<void()> on_disturbed)
      : silence_(concat("was silent for ", seconds_text(options.peer_timeout))),
        longest_pause_(10 * options.heartbeat_interval),
        on_disturbed_(std::move(on_disturbed)),
        mesh_(world, contact, options, wake_up_.fd()),
        regroup_(mesh_.self(), mesh_.group()) {
    publish();
    thread_ = std::thread([this] { run(); });
  }

  ~ControlThread() {
    ask([this] { requests_.stop = true; });
    thread_.join();
  }

  [[nodiscard]] int self() const { return mesh_.self(); }
  [[nodiscard]] Invitation invitation() const { return mesh_.invitation(); }

  [[nodiscard]] bool has_guests() {
    const std::scoped_lock lock(mutex_);
    return known_.has_guests;
  }

  [[nodiscard]] bool wait_for_disturbance(milliseconds limit) {
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, limit, [&] { return known_.is_disturbed; });
    return known_.is_disturbed;
  }

  [[nodiscard]] GroupNews take_news() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(news_, {});
  }

  [[nodiscard]] Group regroup(std::int64_t steps_done) {
    ask([&] {
      requests_.ready = steps_done;
      known_.is_waiting = true;
    });
    std::unique_lock lock(mutex_);
    const auto is_decided = [&] { return !known_.is_waiting || !known_.why_not.empty(); };
    const bool in_time = wait_own_time(changed_, lock, kLongestStop, is_decided);
    if (!known_.why_not.empty()) throw PeerError(known_.why_not);
    if (!in_time)
      throw PeerError("the other processes did not stop training within ", seconds_text(kLongestStop),
                      "; see their logs");
    return known_.group;
  }

  void dismiss(int member) {
    ask([&] { requests_.dismissed.insert(member); });
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, kAcknowledge, [&] { return known_.is_disturbed; });
  }

  void publish_text(const std::string& text) {
    ask([&] { requests_.text = text; });
  }

  [[nodiscard]] std::string wait_for_text() {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return texts_.contains(known_.group.number); };
    wait_own_time(changed_, lock, kLongestStop, [&] { return is_there() || known_.is_disturbed; });
    if (known_.is_disturbed || !is_there()) throw PeerError("a process was lost while the others formed a new group");
    return texts_.at(known_.group.number);
  }

  void leave() {
    ask([this] { requests_.leave = true; });
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, kDrain, [&] { return known_.is_alone; });
  }

  void end(const std::string& why, MembershipMessage::Kind kind) {
    ask([&] { requests_.end = MembershipMessage{.kind = kind, .text = why}; });
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, kAcknowledge, [&] { return known_.is_acknowledged || known_.is_alone; });
  }

  [[nodiscard]] std::optional<std::string> why_stopped() {
    const std::scoped_lock lock(mutex_);
    return why_stopped_;
  }

 private:
  using Kind = MembershipMessage::Kind;

  struct Requests {
    bool stop = false, leave = false;
    std::optional<std::int64_t> ready;
    std::optional<std::string> text;
    std::optional<MembershipMessage> end;
    std::set<int> dismissed;
  };
  // What the control thread knew last, for the other threads.
  struct Known {
    Group group;
    bool is_disturbed = false, is_waiting = false, is_alone = false, is_acknowledged = false, has_guests = false;
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
        follow_group();
        for (const auto& [to, message] : regroup_.take_outbox())
          mesh_.send(to, {.kind = Kind::kRegroup, .text = cause_of(message), .regroup = message});
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
    for (const int member : requests.dismissed) lose(member, kOutOfReach, /*is_dead=*/false);
    if (requests.text)
      mesh_.send_to_all({.kind = Kind::kText, .number = regroup_.group().number, .text = *requests.text});
    if (requests.end) mesh_.send_to_all(*requests.end);
    if (requests.leave) {
      is_leaving_ = true;
      mesh_.send_to_all({.kind = Kind::kLeave});
    }
    return true;
  }

  void follow_group() {
    if (regroup_.is_disturbed()) {
      for (const int member : std::exchange(left_, {})) regroup_.lost(member, /*is_dead=*/true);
    }
    for (const int member : regroup_.group().members) {
      if (!mesh_.knows(member)) regroup_.lost(member, /*is_dead=*/true);  // gone before it could connect
    }
    if (known_.group.number != regroup_.group().number) note_newcomers();  // only this thread changes known_
  }

  void publish() {
    {
      const std::scoped_lock lock(mutex_);
      known_ = {.group = regroup_.group(),
                .is_disturbed = regroup_.is_disturbed(),
                .is_waiting = requests_.ready || regroup_.is_waiting(),
                .is_alone = mesh_.connected() == 0,
                .is_acknowledged = acknowledged_ >= mesh_.connected(),
                .has_guests = regroup_.has_guests(),
                .why_not = regroup_.why_not()};
      changed_.notify_all();
    }
    if (regroup_.is_disturbed() && disturbed_group_ != regroup_.group().number && !is_leaving_) {
      disturbed_group_ = regroup_.group().number;
      on_disturbed_();
    }
  }

  void note_newcomers() {
    const std::scoped_lock lock(mutex_);
    for (const int member : regroup_.group().members) {
      if (member != self() && mesh_.knows(member) && !known_.group.contains(member))
        news_.joined.push_back({member, mesh_.host_of(member), arrivals_.at(member)});
    }
  }

  void handle(const ControlMesh::Event& event) {
    using What = ControlMesh::Event::What;
    switch (event.what) {
      // The system also ends a connection that has been silent for long, behind which the process may live.
      case What::kEnded: return lose(event.member, kEnded, mesh_.silence_of(event.member) < longest_pause_);
      case What::kSilent: return lose(event.member, silence_, /*is_dead=*/false);
      case What::kMessage: return receive(event.member, event.message);
    }
  }

  void receive(int from, const MembershipMessage& message) {
    switch (message.kind) {
      case Kind::kHello:
        arrivals_[from] = now_ns();
        if (message.member == kNobody) mesh_.welcome(from, regroup_);
        return;
      case Kind::kWelcome:
      case Kind::kBeat: return;
      case Kind::kLeave: left_.insert(from); return;
      case Kind::kAcknowledged: ++acknowledged_; return;
      case Kind::kFailed:
      case Kind::kStopped: return take_end(from, message);
      case Kind::kRegroup: return receive(from, message.regroup, message.text);
      case Kind::kText: {
        const std::scoped_lock lock(mutex_);
        texts_[message.number] = message.text;
      }
    }
  }

  void receive(int from, const RegroupMessage& message, const std::string& cause) {
    if (message.kind == RegroupMessage::Kind::kLost && message.number == regroup_.group().number)
      note_loss(message.member, cause);
    regroup_.receive(from, message);
  }

  void take_end(int from, const MembershipMessage& message) {
    mesh_.send(from, {.kind = Kind::kAcknowledged});
    // Later groups have begun to train: a newcomer that is stopped is a loss.
    if (message.kind == Kind::kStopped && regroup_.group().number == 0 && regroup_.group().contains(from)) {
      const std::scoped_lock lock(mutex_);
      why_stopped_ = concat("rank ", from, " (host ", mesh_.host_of(from), ") was stopped: ", message.text);
    }
    lose(from, message.text, /*is_dead=*/true);
  }

  void lose(int member, const std::string& why, bool is_dead) {
    note_loss(member, why);
    regroup_.lost(member, is_dead);
  }

  void note_loss(int member, const std::string& why) {
    const bool is_news = member != self() && !regroup_.is_gone(member) && regroup_.group().contains(member);
    if (!is_news) return;
    causes_[member] = why;
    const std::scoped_lock lock(mutex_);
    news_.lost.push_back({member, mesh_.host_of(member), why, to_ms(mesh_.silence_of(member).count()), now_ns()});
  }

  [[nodiscard]] std::string cause_of(const RegroupMessage& message) const {
    if (message.kind != RegroupMessage::Kind::kLost) return {};
    const auto cause = causes_.find(message.member);
    return cause != causes_.end() ? cause->second : regroup_.why_not();  // which is empty unless it is its own loss
  }

  const std::string silence_;
  const milliseconds longest_pause_;  // of a living process on a busy machine
  std::function<void()> on_disturbed_;
  WakeUp wake_up_;
  // Used only by the control thread once it runs, but for what does not change in the mesh:
  ControlMesh mesh_;
  Regroup regroup_;
  int disturbed_group_ = -1;  // number of the last group that on_disturbed_ was called for
  bool is_leaving_ = false;
  std::map<int, std::string> causes_;    // [lost member]
  std::set<int> left_;                   // members that have ended as planned
  std::map<int, Nanoseconds> arrivals_;  // [process]: when it connected
  int acknowledged_ = 0;                 // processes that know the end of this one

  std::mutex mutex_;
  std::condition_variable changed_;
  Requests requests_;
  Known known_;
  GroupNews news_;
  std::optional<std::string> why_stopped_;
  std::map<int, std::string> texts_;  // [number of the group]: its leader's
  std::thread thread_;
};

Membership::Membership(const World& world, const NoticeBoard& board, const LivenessOptions& options,
                       std::function<void()> on_disturbed)
    : thread_(std::make_unique<ControlThread>(world, board, options, std::move(on_disturbed))) {}

Membership::Membership(const World& world, const Invitation& invitation, const LivenessOptions& options,
                       std::function<void()> on_disturbed)
    : thread_(std::make_unique<ControlThread>(world, invitation, options, std::move(on_disturbed))) {}

Membership::~Membership() = default;

int Membership::self() const { return thread_->self(); }
Invitation Membership::invitation() const { return thread_->invitation(); }
bool Membership::has_guests() const { return thread_->has_guests(); }
void Membership::dismiss(int member) { thread_->dismiss(member); }

bool Membership::is_disturbed() const { return wait_for_disturbance(milliseconds(0)); }
bool Membership::wait_for_disturbance(milliseconds limit) const { return thread_->wait_for_disturbance(limit); }
GroupNews Membership::take_news() { return thread_->take_news(); }
Group Membership::regroup(std::int64_t steps_done) { return thread_->regroup(steps_done); }
void Membership::publish_text(const std::string& text) { thread_->publish_text(text); }
std::string Membership::wait_for_text() { return thread_->wait_for_text(); }
void Membership::leave() { thread_->leave(); }
void Membership::fail(const std::string& why) { thread_->end(why, MembershipMessage::Kind::kFailed); }
void Membership::stop(const std::string& why) { thread_->end(why, MembershipMessage::Kind::kStopped); }
std::optional<std::string> Membership::why_stopped() const { return thread_->why_stopped(); }

}  // namespace sluice::comm
