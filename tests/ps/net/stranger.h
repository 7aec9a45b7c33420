// stranger: what speaks to a server as a worker does, but says what it likes.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "ps/net/toy.h"

namespace sluice::ps::test {

class Stranger {
 public:
  explicit Stranger(int port, const std::string& name = "stranger")
      : socket_(FrameSocket::Role::kConnecting, name, {.frame_bytes = -1, .frames = 4096}) {
    socket_.connect("127.0.0.1", port);
  }
  // Waits for the connection: what is sent before it stands, or while it is made anew, is dropped.
  void send(const Frames& frames) {
    for (const Nanoseconds until = now_ns() + 10'000'000'000; now_ns() < until;) {
      if (try_send(frames)) return;
      socket_.wait_to_send(std::chrono::milliseconds(10), -1);
    }
    ADD_FAILURE() << "the server takes nothing";
  }
  void send(std::string header) { send(Frames{frame_of(std::move(header))}); }
  // False: it was not sent.
  bool try_send(const Frames& frames) { return socket_.send({}, frames); }
  std::optional<FrameSocket::Received> receive(double seconds = 2) {
    const Nanoseconds until = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
    while (now_ns() < until) {
      socket_.wait(std::chrono::milliseconds(10));
      if (auto received = socket_.next()) return received;
    }
    return std::nullopt;
  }
  // The next message of this kind.
  template <typename T>
  std::optional<std::pair<T, Frames>> receive_kind() {
    for (int i = 0; i < 200; ++i) {
      auto received = receive();
      if (!received) break;
      const auto message = from_server(received->frames.front());
      if (message && std::holds_alternative<T>(*message)) return std::pair{std::get<T>(*message), received->frames};
    }
    return std::nullopt;
  }
  void join(int worker) {
    for (int i = 0; i < 100; ++i) {
      send({header_of(Hello{.worker = WorkerId{worker}, .process_id = "s", .where = "here", .batch = kLease})});
      if (receive(0.05)) return;
    }
    FAIL();
  }
  // Joins, and takes its first samples and weights.
  struct Begun {
    std::int64_t lease = kNone;
    std::vector<std::int64_t> samples;
    Tensors weights;
    std::int64_t server_epoch = 0;
  };
  Begun begin(int worker, const Layout& layout) {
    join(worker);
    const auto lease = receive_kind<LeaseGiven>();
    const auto weights = receive_kind<WeightsGiven>();
    const auto heartbeat = receive_kind<ServerHeartbeat>();
    if (!lease || !weights || !heartbeat) throw std::runtime_error("the server gave no samples, no weights or no beat");
    return {lease->first.id, *samples_after_header(lease->second),
            *tensors_after_header(weights->second, shape_of(layout, {0, layout.shards.size()})),
            heartbeat->first.of.server_epoch};
  }

 private:
  FrameSocket socket_;
};

}  // namespace sluice::ps::test
