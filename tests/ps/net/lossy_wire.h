// lossy_wire: a connection that loses messages in both directions, unseen, and may be slow.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "ps/net/frame_socket.h"

namespace sluice::ps::test {

// Between a worker and the server: hands messages on, and loses some in both directions.
class LossyWire {
 public:
  LossyWire(int server_port, double loss) : loss_(loss) {
    port_ = front_.listen("127.0.0.1", 0);
    thread_ = std::thread([this, server_port] { run(server_port); });
  }
  ~LossyWire() {
    must_stop_ = true;
    thread_.join();
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int lost() const { return lost_; }
  // What goes to the server is under way until release(), and comes in its order.
  void hold() { holds_ = true; }
  void release() { holds_ = false; }

 private:
  bool is_lost() {
    const bool lost = uniform(draws_++) < loss_;
    lost_ += lost ? 1 : 0;
    return lost;
  }
  static double uniform(std::int64_t draw) {
    const std::uint64_t mixed = (static_cast<std::uint64_t>(draw) + 1) * 0x9E3779B97F4A7C15ULL;
    return static_cast<double>((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9ULL >> 11) * 0x1.0p-53;
  }
  void run(int server_port) {
    std::map<std::string, std::unique_ptr<FrameSocket>> back;  // by worker
    std::deque<std::pair<FrameSocket*, Frames>> under_way;
    while (!must_stop_) {
      front_.wait(std::chrono::milliseconds(1));
      while (auto received = front_.next()) {
        auto& socket = back[received->routing_id];
        if (!socket) {
          socket = std::make_unique<FrameSocket>(FrameSocket::Role::kConnecting, received->routing_id,
                                                 FrameSocket::Limits{});
          socket->connect("127.0.0.1", server_port);
        }
        if (!is_lost()) under_way.emplace_back(socket.get(), std::move(received->frames));
      }
      for (; !holds_ && !under_way.empty(); under_way.pop_front())
        under_way.front().first->send({}, under_way.front().second);
      for (auto& [routing_id, socket] : back) {
        while (auto received = socket->next()) {
          if (!is_lost()) front_.send(routing_id, received->frames);
        }
      }
    }
  }

  FrameSocket front_{FrameSocket::Role::kListening, {}, {}};
  double loss_;
  int port_ = 0;
  std::int64_t draws_ = 0;
  std::atomic<int> lost_ = 0;
  std::atomic<bool> must_stop_ = false, holds_ = false;
  std::thread thread_;
};

}  // namespace sluice::ps::test
