#include "ps/net/part_link.h"

#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "ps/net/socket_thread.h"

namespace sluice::ps {
namespace {

// Only logs the error: the lead server notices the missing parts.
void warn_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

}  // namespace

class PartLink::Connection {
 public:
  explicit Connection(PartLinkOptions options)
      : options_(std::move(options)),
        socket_(FrameSocket::Role::kConnecting, options_.process_id, with_few_unsent(kFromServers), options_.keys),
        thread_(socket_, {.take = [this](Frames message) { handle(std::move(message)); },
                          .turn = [this] { return turn(); },
                          .fail = warn_of}),
        mutex_(thread_.mutex()) {
    socket_.connect(options_.host, options_.port);
    thread_.start();
  }
  ~Connection() { thread_.stop(); }

  void push_ahead(const PushAhead& ahead, const at::Tensor& elements) {
    thread_.change([&] {
      ahead_.push_back({header_of(PartFromWorker{ahead}), frame_of(elements)});
      thread_.send(ahead_.back());
    });
  }
  void forget_ahead() {
    const std::scoped_lock lock(mutex_);
    ahead_.clear();
    if (part_.empty()) thread_.drop_unsent();
  }
  void push(const PartMade& made, const Packed& shards) {
    thread_.change([&] {
      made_ = made;
      part_ = std::exchange(ahead_, {});
      part_.push_back(with_packed(header_of(made), shards));
      thread_.send(part_.back());
    });
  }
  void forget() {
    const std::scoped_lock lock(mutex_);
    part_.clear();
  }

 private:
  Nanoseconds turn() {
    send_heartbeat();
    return next_heartbeat_;
  }

  void send_heartbeat() {
    if (thread_.now() < next_heartbeat_) return;
    next_heartbeat_ = thread_.now() + options_.heartbeat_interval;
    send(part_.empty() ? PartHeartbeat{} : PartHeartbeat{.push = made_.push, .server_epoch = made_.server_epoch});
  }

  void handle(Frames frames) {
    const auto message = shards_to_worker(frames.front());
    if (!message) return;
    if (const auto* const weights = std::get_if<WeightsPart>(&*message)) {
      options_.on_weights(*weights, std::move(frames));
    } else if (const auto* const heartbeat = std::get_if<WeightsHeartbeat>(&*message)) {
      options_.on_heartbeat({heartbeat->incarnation, heartbeat->version});
    } else {
      const std::scoped_lock lock(mutex_);
      if (!thread_.has_sent_all()) return;  // the rest of the part is still queued
      for (const Frames& part : part_) thread_.send(part);
    }
  }

  void send(const PartFromWorker& message) { thread_.send_now({header_of(message)}); }

  PartLinkOptions options_;

  // Used by the connection's thread only.
  FrameSocket socket_;
  Nanoseconds next_heartbeat_ = 0;

  SocketThread thread_;
  std::mutex& mutex_;
  // Guarded by mutex_.
  PartMade made_;
  std::vector<Frames> part_;  // messages of the unanswered part; empty: all are answered
  std::vector<Frames> ahead_;
};

PartLink::PartLink(PartLinkOptions options) : connection_(std::make_unique<Connection>(std::move(options))) {}
PartLink::~PartLink() = default;

void PartLink::push_ahead(const PushAhead& ahead, const at::Tensor& elements) {
  connection_->push_ahead(ahead, elements);
}
void PartLink::forget_ahead() { connection_->forget_ahead(); }
void PartLink::push(const PartMade& made, const Packed& shards) { connection_->push(made, shards); }
void PartLink::forget() { connection_->forget(); }

}  // namespace sluice::ps
