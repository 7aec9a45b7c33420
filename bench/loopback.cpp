#include "loopback.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "comm/socket_address.h"
#include "core/check.h"
#include "core/clock.h"
#include "ps/net/frame_socket.h"

namespace sluice::ps {
namespace {

constexpr double kWarmUp = 0.2;  // seconds that do not count

std::vector<char> buffer_of(const Loopback& what) { return std::vector<char>(static_cast<std::size_t>(what.bytes), 1); }

// Counts the exchanges of all workers between the warm-up and the end.
class Count {
 public:
  explicit Count(const Loopback& what) : what_(what) {}
  void add() { ++exchanges_; }
  [[nodiscard]] bool is_over() const { return is_over_; }
  double measure() {
    std::this_thread::sleep_for(std::chrono::duration<double>(kWarmUp));
    const Nanoseconds begin = now_ns();
    const std::int64_t before = exchanges_;
    std::this_thread::sleep_for(std::chrono::duration<double>(what_.seconds));
    const auto counted = static_cast<double>(exchanges_ - before);
    const double rate = per_second(2 * counted * static_cast<double>(what_.bytes), now_ns() - begin);
    is_over_ = true;
    return rate;
  }

 private:
  Loopback what_;
  std::atomic<std::int64_t> exchanges_ = 0;
  std::atomic<bool> is_over_ = false;
};

// False if the other end is closed.
bool send_all(int fd, const std::vector<char>& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t some = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (some <= 0) return false;
    sent += static_cast<std::size_t>(some);
  }
  return true;
}

bool receive_all(int fd, std::vector<char>& into) {
  for (std::size_t received = 0; received < into.size();) {
    const ssize_t some = ::recv(fd, into.data() + received, into.size() - received, 0);
    if (some <= 0) return false;
    received += static_cast<std::size_t>(some);
  }
  return true;
}

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "a connection to this machine");
  return fd;
}

void send_and_receive(int port, const Loopback& what, Count& count) {
  const int fd = connect_to(port);
  const std::vector<char> given = buffer_of(what);
  std::vector<char> got = buffer_of(what);
  while (!count.is_over() && send_all(fd, given) && receive_all(fd, got)) count.add();
  ::close(fd);
}

void receive_and_send(int fd, const Loopback& what) {
  std::vector<char> got = buffer_of(what);
  const std::vector<char> given = buffer_of(what);
  while (receive_all(fd, got) && send_all(fd, given)) {
  }
  ::close(fd);
}

Frames frames_of(const Loopback& what) {
  Frames frames;
  for (int i = 0; i < what.frames; ++i) frames.push_back(frame_of(at::zeros({what.bytes / what.frames}, at::kByte)));
  return frames;
}

void exchange_frames(int port, int worker, const Loopback& what, Count& count) {
  FrameSocket socket(FrameSocket::Role::kConnecting, std::to_string(worker), {.frame_bytes = -1});
  socket.connect("127.0.0.1", port);
  const Frames given = frames_of(what);
  bool is_answered = false;  // messages sent before there is a connection are lost
  while (!count.is_over()) {
    socket.send({}, given);
    const Nanoseconds until = now_ns() + (is_answered ? 10'000'000'000 : 100'000'000);
    auto received = socket.next();
    while (!received && !count.is_over() && now_ns() < until) {
      socket.wait(std::chrono::milliseconds(20));
      received = socket.next();
    }
    is_answered = is_answered || received;
    if (received) count.add();
  }
}

}  // namespace

double memory_bytes_per_s(const Loopback& what) {
  Count count(what);
  std::vector<std::thread> workers;
  for (int w = 0; w < what.workers; ++w) {
    workers.emplace_back([&] {
      std::vector<char> own = buffer_of(what), servers = buffer_of(what);
      while (!count.is_over()) {
        std::memcpy(servers.data(), own.data(), own.size());
        std::memcpy(own.data(), servers.data(), own.size());
        count.add();
      }
    });
  }
  const double rate = count.measure();
  for (std::thread& worker : workers) worker.join();
  return rate;
}

double tcp_bytes_per_s(const Loopback& what) {
  Count count(what);
  const int listener = comm::listen_on("127.0.0.1", 0);
  const int port = comm::own_address(listener).port;
  std::vector<std::thread> threads;
  for (int w = 0; w < what.workers; ++w) {
    threads.emplace_back([&] { send_and_receive(port, what, count); });
    const int fd = ::accept(listener, nullptr, nullptr);
    threads.emplace_back([&what, fd] { receive_and_send(fd, what); });
  }
  const double rate = count.measure();
  for (std::thread& thread : threads) thread.join();
  ::close(listener);
  return rate;
}

double frames_bytes_per_s(const Loopback& what) {
  Count count(what);
  FrameSocket server(FrameSocket::Role::kListening, {}, {.frame_bytes = what.bytes});
  const int port = server.listen("127.0.0.1", 0);
  std::vector<std::thread> workers;
  for (int w = 0; w < what.workers; ++w) workers.emplace_back([&, w] { exchange_frames(port, w, what, count); });
  std::thread answers([&] {
    const Frames given = frames_of(what);
    while (!count.is_over()) {
      server.wait(std::chrono::milliseconds(20));
      while (const auto received = server.next()) server.send(received->routing_id, given);
    }
  });
  const double rate = count.measure();
  answers.join();
  for (std::thread& worker : workers) worker.join();
  return rate;
}

}  // namespace sluice::ps
