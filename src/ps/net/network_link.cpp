#include "ps/net/network_link.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <variant>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"
#include "ps/net/messages.h"
#include "ps/net/push_under_way.h"
#include "ps/net/rival.h"
#include "ps/net/socket_thread.h"
#include "ps/net/worker_parts.h"

namespace sluice::ps {
namespace {

using std::chrono::milliseconds;

constexpr Nanoseconds kHello = 50'000'000;  // between two Hellos
constexpr milliseconds kLook{50};           // between two checks for a stop
constexpr milliseconds kLastWords{5000};    // for the server's answer to the last message

}  // namespace

class NetworkLink::Connection {
 public:
  explicit Connection(LinkOptions options)
      : options_(std::move(options)),
        rival_(options_.worker, options_.rival_timeout),
        socket_(FrameSocket::Role::kConnecting, options_.process_id, with_few_unsent(kFromServers), options_.keys),
        thread_(socket_, {.take = [this](const Frames& message) { on_message(message); },
                          .turn = [this] { return turn(); },
                          .fail = [this](std::exception_ptr failure) { fail(std::move(failure)); }}),
        mutex_(thread_.mutex()) {
    socket_.connect(options_.host, options_.port);
    parts_.emplace(parts_options());
    thread_.start();
  }

  ~Connection() {
    thread_.stop();
    parts_.reset();
  }

  // Returns the lock once `condition` holds under it. Throws the thread's error, or InterruptedError if asked to stop.
  template <typename Condition>
  std::unique_lock<std::mutex> wait_for(const Condition& condition) {
    std::unique_lock lock(mutex_);
    for (bool is_met = condition(); !is_met; is_met = wait_own_time(changed_, lock, kLook, condition)) {
      if (failure_) std::rethrow_exception(failure_);
      if (options_.is_stopped()) throw InterruptedError("stopped by a signal");
    }
    return lock;
  }

  void wait_until_welcome() {
    const auto lock = wait_for([this] { return is_admitted() || is_over_; });
    if (is_admitted()) return;
    throw_if_failed(why_over_);
    rival_.throw_if_there(concat("the run of ", server(), " is over"));
    was_over_ = true;
  }
  [[nodiscard]] bool was_over() const { return was_over_; }

  std::optional<data::Lease> next_lease() {
    if (options_.is_stopped()) throw InterruptedError("stopped by a signal");
    const auto lock = wait_for([this] { return lease_.has_value() || is_over_; });
    if (is_over_) {
      throw_if_failed(why_over_);
      return std::nullopt;
    }
    joining_of_step_ = joinings_;
    lease_of_step_ = static_cast<std::int64_t>(lease_->id);
    return *std::exchange(lease_, std::nullopt);
  }

  void check_step() {
    const std::scoped_lock lock(mutex_);
    if (options_.is_stopped()) throw InterruptedError("stopped by a signal");
    if (failure_) std::rethrow_exception(failure_);
    if (is_void_or_over()) throw StepIsVoid();
  }

  std::int64_t wait_for_weights() {
    const auto lock = wait_for([this] { return has_weights() || is_void_or_over(); });
    if (is_void_or_over()) throw StepIsVoid();
    return version_;
  }

  std::int64_t pull(Tensors& into) {
    const auto lock = wait_for([this] { return is_void_or_over() || (weights_ && parts_->take(newest(), *weights_)); });
    if (is_void_or_over()) throw StepIsVoid();
    into = *std::exchange(weights_, std::nullopt);
    push_.forget_ahead();
    parts_->forget_ahead();
    return version_;
  }

  [[nodiscard]] bool takes_spans() const { return !options_.compression.push.loses(); }
  void push_ahead(std::size_t shard, std::vector<ShardSpan> spans, const at::Tensor& elements) {
    thread_.change([&] {
      if (is_step_void()) return;
      const PushAhead ahead{.push = {options_.worker, static_cast<int>(incarnation_.number), push_.sequence() + 1},
                            .lease = lease_of_step_,
                            .shard = static_cast<std::int64_t>(shard),
                            .spans = std::move(spans),
                            .server_epoch = incarnation_.server_epoch};
      if (!parts_->push_ahead(ahead, elements)) thread_.send(push_.add_ahead(ahead, elements));
    });
  }
  void push(Push push) {
    thread_.change([&] {
      if (is_step_void()) return log_info("discarding a step: the server removed this worker while it was computing");
      push.record.worker = options_.worker;
      push.record.incarnation = static_cast<int>(incarnation_.number);
      const Packed packed = push_.pack(push.record, std::move(push.tensors));
      const PushMade made{push.record, push.scores, push.times, lease_of_step_, packed.shards.empty()};
      const Packed of_lead =
          parts_->push({.push = push.record.key(), .server_epoch = incarnation_.server_epoch}, packed);
      thread_.send(push_.make(made, of_lead, thread_.now()));
    });
  }

  // Waits for the server's answer: a connection that is closed before it is read to its end loses what is unsent.
  void send_last(const FromWorker& last_words) {
    thread_.change([&] {
      if (!push_.is_open()) thread_.drop_unsent();  // messages of a void step
      thread_.send({header_of(last_words)});
      has_sent_last_ = true;
    });
    const auto has_ended = [this] { return (is_over_ && thread_.has_sent_all()) || failure_ != nullptr; };
    std::unique_lock lock(mutex_);
    wait_own_time(changed_, lock, kLastWords, has_ended);
  }

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] std::string run() {
    const std::scoped_lock lock(mutex_);
    return push_.run();
  }
  [[nodiscard]] PushCompressor::Named residuals() {
    const std::scoped_lock lock(mutex_);
    return push_.residuals();
  }
  void load_residuals(const PushCompressor::Named& residuals) {
    const std::scoped_lock lock(mutex_);
    push_.load_residuals(residuals);
  }
  [[nodiscard]] double last_send_s() {
    const std::scoped_lock lock(mutex_);
    return last_send_s_;
  }

 private:
  [[nodiscard]] std::string server() const {
    if (!options_.others.empty()) return server_named(0, options_.host, options_.port);
    return concat("the parameter server at ", options_.host, ":", options_.port);
  }

  Nanoseconds turn() {
    check_timeouts();
    send_heartbeat();
    changed_.notify_all();
    return next_heartbeat_;
  }

  void fail(std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    failure_ = std::move(failure);
    changed_.notify_all();
  }

  void send_heartbeat() {
    if (thread_.now() < next_heartbeat_) return;
    next_heartbeat_ =
        thread_.now() + (!is_admitted() ? std::min(options_.heartbeat_interval, kHello) : options_.heartbeat_interval);
    if (is_over_ || has_sent_last_) return;
    if (!is_admitted()) {
      send(Hello{kProtocol, options_.worker, options_.process_id, options_.where, options_.batch, abandons_,
                 options_.agreement});
    } else {
      send(WorkerHeartbeat{push_.sequence()});
      if (weights_ && parts_->has_lost(newest())) send(WorkerAgain{last_lease_, version_ - 1});
    }
  }

  void check_timeouts() {
    const Nanoseconds now = thread_.now();
    if (is_over_ || has_sent_last_) return;
    const Nanoseconds limit = !is_admitted() && !was_welcome_ ? options_.connect_timeout : options_.peer_timeout;
    if (push_.is_open() && now - push_.made_at() > options_.connect_timeout)
      throw PeerError(server(), " is alive, but has not answered a push for ",
                      human_duration(to_s(options_.connect_timeout)), "; see its log");
    if (weights_) parts_->check_wait(newest(), now - weights_at_, options_.peer_timeout);
    if (now - last_message_at_ <= limit) return;
    rival_.throw_if_there(concat(server(), " has been silent for ", human_duration(to_s(limit))));
    throw PeerError(was_welcome_
                        ? concat(server(), " has been silent for ", human_duration(to_s(limit)), "; see its log")
                        : concat("no parameter server has answered at ", options_.host, ":", options_.port, " within ",
                                 human_duration(to_s(limit)), "; start it, or check its address",
                                 about_keys(options_.keys)));
  }

  void on_message(const Frames& frames) {
    const std::scoped_lock lock(mutex_);
    const auto message = from_server(frames.front());
    if (!message) return;
    if (has_sent_last_) return static_cast<void>(is_over_ |= std::holds_alternative<Over>(*message));
    last_message_at_ = thread_.now();
    std::visit(
        HandlerOf{[&](const Welcome& welcome) { on_welcome(welcome); },
                  [&](const Refusal& refusal) { throw ConfigError(server(), " refuses this worker: ", refusal.what); },
                  [&](const Busy& busy) { rival_.report(busy.where, server(), thread_.now()); },
                  [&](const Who&) {
                    if (is_admitted()) begin_anew();
                  },
                  [&](const LeaseGiven& given) { on_lease(given, frames); },
                  [&](const WeightsGiven& given) { on_weights(given, frames); },
                  [&](const PushAnswered& answered) { on_push_answered(answered); },
                  [&](const ServerHeartbeat& heartbeat) { on_heartbeat(heartbeat); },
                  [&](const ServerAgain&) { send_push_again(); }, [&](const Over& over) { on_over(over); }},
        *message);
  }

  void on_welcome(const Welcome& welcome) {
    if (was_welcome_ && welcome.layout != layout_)
      throw PeerError("the server has come back with another model; start this worker again");
    if (is_admitted()) return check_incarnation(welcome.incarnation);
    if (welcome.abandoned != abandons_) return;  // answers an earlier Hello
    if (was_welcome_) {
      log_info(concat("the server had removed this worker; it has joined again, after update ", welcome.version));
    } else {
      layout_ = welcome.layout;
      options_.take_constants(welcome.constants);
      was_welcome_ = true;
      parts_->begin(layout_);
      push_.begin(options_.compression.push, layout_);
      decoder_.emplace(options_.compression.pull, parts_->first_shape());
    }
    rival_.forget();
    incarnation_ = welcome.incarnation;
    ++joinings_;
    version_ = last_lease_ = kNone;
    lease_.reset();
    weights_.reset();
    decoder_->forget();
    push_.begin_incarnation(welcome);
    parts_->forget();
    parts_->forget_ahead();
  }
  void on_lease(const LeaseGiven& given, const Frames& frames) {
    auto samples = samples_after_header(frames);
    if (!is_admitted() || given.id <= last_lease_) return;
    const bool is_one = samples && !samples->empty() && std::ssize(*samples) <= options_.batch + options_.slack &&
                        std::ranges::all_of(*samples, [](std::int64_t sample) { return sample >= 0; });
    if (!is_one) throw PeerError(server(), " has sent invalid samples");
    last_lease_ = given.id;
    if (given.id > lease_of_step_ && push_.is_open())
      forget_push(/*was_committed=*/true);  // the lease implies the commit; the answer was lost
    lease_ = data::Lease{data::LeaseId{given.id}, given.epoch, std::move(*samples)};
  }
  void on_weights(const WeightsGiven& given, const Frames& frames) {
    if (!is_admitted()) return;
    const PackedWeights message = weights_after_header(frames, parts_->first_shape(), given.sequence, given.is_whole);
    if (!decoder_->follows(message)) return;  // a message before it was lost and will be requested
    auto tensors = decoder_->take(message);
    if (!tensors) throw PeerError(server(), " has sent weights of another layout");
    if (given.version > std::exchange(version_, std::max(version_, given.version)))
      weights_ = std::move(*tensors), weights_at_ = last_message_at_;
  }
  void on_push_answered(const PushAnswered& answered) {
    if (!push_.is_open() || answered.sequence != push_.sequence()) return;
    const bool was_committed = answered.answer == PushAnswer::kCommitted || answered.answer == PushAnswer::kDuplicate;
    if (!was_committed && answered.answer != PushAnswer::kRefused) return begin_anew();  // Welcome has the result
    forget_push(was_committed);
    if (answered.answer == PushAnswer::kRefused)
      throw DivergedError("the server has refused a push: it has numbers that are not finite; lower the learning rate");
    last_send_s_ = to_s(thread_.now() - push_.made_at());
    send(PushSent{answered.sequence, last_send_s_});
  }
  void on_heartbeat(const ServerHeartbeat& heartbeat) {
    if (is_admitted()) check_incarnation(heartbeat.of);
    if (is_admitted() && (heartbeat.lease > last_lease_ || heartbeat.version > version_))
      send(WorkerAgain{last_lease_, version_});
  }
  void send_push_again() {
    if (!thread_.has_sent_all()) return;  // the rest of the push is still queued
    for (const Frames& message : push_.messages()) thread_.send(message);
  }
  // A worker that was never admitted sends Leaving now, so that the server can close the connection.
  void on_over(const Over& over) {
    if (!std::exchange(is_over_, true) && !is_admitted()) send(Leaving{});
    why_over_ = over;
  }

  WorkerPartsOptions parts_options() {
    return {.servers = options_.others,
            .keys = options_.keys,
            .process_id = options_.process_id,
            .heartbeat_interval = options_.heartbeat_interval,
            .pull = options_.compression.pull,
            .on_change = [this] { thread_.change([this] { changed_.notify_all(); }); }};
  }

  [[nodiscard]] bool is_admitted() const { return incarnation_.number > 0; }
  // Under the lock: whether the server has removed this worker, or admitted it again, since the step began.
  [[nodiscard]] bool is_step_void() const { return !is_admitted() || joinings_ != joining_of_step_; }
  [[nodiscard]] bool is_void_or_over() const { return joinings_ != joining_of_step_ || is_over_; }
  [[nodiscard]] PartVersion newest() const { return {incarnation_, version_}; }
  [[nodiscard]] bool has_weights() const { return weights_ && parts_->has(newest()); }  // of one version

  void forget_push(bool was_committed) {
    push_.forget(was_committed);
    parts_->forget();
  }

  void check_incarnation(const Incarnation& incarnation) {
    if (incarnation != incarnation_) begin_anew();
  }
  void begin_anew() {
    if (is_admitted()) abandons_ = std::exchange(incarnation_, {});
    thread_.drop_unsent();  // messages of the old incarnation
    lease_.reset();
    weights_.reset();
    next_heartbeat_ = 0;  // sends Hello at once
  }

  void send(const FromWorker& message) { thread_.send_now({header_of(message)}); }

  LinkOptions options_;
  Layout layout_;  // written once, before any other thread reads it

  Rival rival_;  // used by other threads only after the run is over

  // Used by the connection's thread only.
  FrameSocket socket_;
  Nanoseconds last_message_at_ = 0;
  Nanoseconds weights_at_ = 0;  // when the lead server's weights arrived
  Nanoseconds next_heartbeat_ = 0;
  Incarnation abandons_;  // the previous incarnation

  SocketThread thread_;
  std::mutex& mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  PushUnderWay push_;
  std::optional<PullDecoder> decoder_;  // set once the layout is known
  double last_send_s_ = 0;
  Incarnation incarnation_;
  std::int64_t joinings_ = 0;         // how often the server has admitted this worker
  std::int64_t joining_of_step_ = 0;  // value of joinings_ when the current step began
  std::int64_t lease_of_step_ = kNone;
  std::int64_t last_lease_ = kNone;
  std::int64_t version_ = kNone;      // version of the last weights
  std::optional<data::Lease> lease_;  // for the next step
  std::optional<Tensors> weights_;    // for the current or next step
  bool was_welcome_ = false;
  std::optional<WorkerParts> parts_;  // parts of other servers; has its own lock
  bool is_over_ = false;
  Over why_over_;
  bool was_over_ = false;       // before this worker was admitted; written once, before any other thread reads it
  bool has_sent_last_ = false;  // nothing is sent after the last message
  std::exception_ptr failure_;
};

NetworkLink::NetworkLink(LinkOptions options)
    : process_id_(options.process_id), connection_(std::make_unique<Connection>(std::move(options))) {
  connection_->wait_until_welcome();
}
NetworkLink::~NetworkLink() = default;

bool NetworkLink::was_over() const { return connection_->was_over(); }
std::optional<data::Lease> NetworkLink::next_lease() { return connection_->next_lease(); }
std::int64_t NetworkLink::wait_for_weights() { return connection_->wait_for_weights(); }
void NetworkLink::check_step() { connection_->check_step(); }
std::string NetworkLink::run() const { return connection_->run(); }
const Layout& NetworkLink::layout() const { return connection_->layout(); }
std::int64_t NetworkLink::pull(Tensors& into) { return connection_->pull(into); }
bool NetworkLink::takes_spans() const { return connection_->takes_spans(); }
void NetworkLink::push_ahead(std::size_t shard, std::vector<ShardSpan> spans, const at::Tensor& elements) {
  connection_->push_ahead(shard, std::move(spans), elements);
}
void NetworkLink::push(Push push) { connection_->push(std::move(push)); }
double NetworkLink::last_send_s() const { return connection_->last_send_s(); }
PushCompressor::Named NetworkLink::residuals() const { return connection_->residuals(); }
void NetworkLink::load_residuals(const PushCompressor::Named& residuals) { connection_->load_residuals(residuals); }
void NetworkLink::leave() { connection_->send_last(Leaving{}); }
void NetworkLink::fail(const Error& error) {
  connection_->send_last(Failed{static_cast<std::int64_t>(error.exit_code()), error.what()});
}

}  // namespace sluice::ps
