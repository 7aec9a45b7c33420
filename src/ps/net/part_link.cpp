#include "ps/net/part_link.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "comm/wake_up.h"
#include "core/error.h"
#include "core/log.h"

namespace sluice::ps {

class PartLink::Connection {
 public:
  explicit Connection(PartLinkOptions options)
      : options_(std::move(options)),
        socket_(FrameSocket::Role::kWorker, options_.session, {.frame_bytes = -1, .frames = 2048}, options_.keys) {
    socket_.connect(options_.host, options_.port);
    thread_ = std::thread([this] { run(); });
  }
  ~Connection() {
    set([this] { must_stop_ = true; });
    thread_.join();
  }

  void push(const PartMade& made, const Packed& shards) {
    set([&] {
      push_ = made.push;
      part_ = with_packed(header_of(made), shards);
      is_sent_ = false;
    });
  }
  void forget() {
    const std::scoped_lock lock(mutex_);
    part_.clear();
  }

 private:
  template <typename Change>
  void set(const Change& change) {
    {
      const std::scoped_lock lock(mutex_);
      change();
    }
    wake_up_.give();
  }

  void run() {
    try {
      while (true) {
        socket_.wait(std::chrono::nanoseconds(std::max<Nanoseconds>(next_beat_ - now_ns(), 0)), wake_up_.fd());
        wake_up_.take();
        while (auto received = socket_.next()) handle(std::move(received->frames));
        const std::scoped_lock lock(mutex_);
        if (!part_.empty() && !std::exchange(is_sent_, true)) socket_.send({}, part_);
        beat();
        if (must_stop_) return;
      }
    } catch (const Error& error) {  // the deciding server will miss the parts
      log_warning(error.what());
    }
  }

  void beat() {
    if (now_ns() < next_beat_) return;
    next_beat_ = now_ns() + options_.beat;
    say(PartBeat{part_.empty() ? PushKey{} : push_});
  }

  void handle(Frames frames) {
    const auto message = from_shards_in(frames.front());
    if (!message) return;
    if (const auto* const weights = std::get_if<WeightsPart>(&*message)) {
      last_ = {weights->life, weights->version};
      options_.on_weights(*weights, std::move(frames));
    } else if (const auto* const beat = std::get_if<WeightsBeat>(&*message)) {
      if (last_ != PartVersion{beat->life, beat->version}) options_.on_lost();
    } else if (std::holds_alternative<PartWanted>(*message)) {
      const std::scoped_lock lock(mutex_);
      if (!part_.empty()) socket_.send({}, part_);
    }
  }

  void say(const ToShards& message) { socket_.send({}, {header_of(message)}); }

  PartLinkOptions options_;
  comm::WakeUp wake_up_;

  // Of the connection's thread alone.
  FrameSocket socket_;
  Nanoseconds next_beat_ = 0;
  PartVersion last_;  // that has come

  std::mutex mutex_;
  // Guarded by mutex_.
  PushKey push_;
  Frames part_;  // the one that has not been answered; empty: none
  bool is_sent_ = false;
  bool must_stop_ = false;

  std::thread thread_;
};

PartLink::PartLink(PartLinkOptions options) : connection_(std::make_unique<Connection>(std::move(options))) {}
PartLink::~PartLink() = default;

void PartLink::push(const PartMade& made, const Packed& shards) { connection_->push(made, shards); }
void PartLink::forget() { connection_->forget(); }

}  // namespace sluice::ps
