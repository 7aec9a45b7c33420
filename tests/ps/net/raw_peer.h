// raw_peer: one end of a connection that speaks ZeroMQ's protocol (ZMTP 3.0, no encryption) byte by byte, so that it
// can announce what it never sends.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "core/clock.h"

namespace sluice::ps::test {

class RawPeer {
 public:
  // Says nothing.
  explicit RawPeer(int fd) : fd_(fd) {}
  // fd: connected. type: of the socket that it says it is, "DEALER" or "ROUTER".
  RawPeer(int fd, const std::string& type) : RawPeer(fd) {
    std::string greeting("\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL", 16);
    greeting.resize(64, '\0');
    send(greeting);
    std::string ready = named("READY") + named("Socket-Type") + std::string("\0\0\0", 3) + named(type);
    send(std::string("\x04", 1) + named(ready));
  }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // The first bytes of a frame of this length.
  void announce(std::uint64_t bytes) {
    std::string head(1, '\x02');
    for (int shift = 56; shift >= 0; shift -= 8) head += static_cast<char>(bytes >> shift & 0xff);
    send(head + std::string(100, 'x'));
  }
  // After the other side's greeting, which must have come before any frame of a message is sent.
  void wait_until_ready() {
    std::size_t got = 0;
    char buffer[256];
    while (got < 64 + 27) {
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      got += static_cast<std::size_t>(count);
    }
  }
  // Sends these bytes again and again. Returns how many left before the other side ended the connection, or all of
  // them.
  std::int64_t send_endlessly(const std::string& bytes, std::int64_t most) {
    std::int64_t sent = 0;
    while (sent < most) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += count;
    }
    return sent;
  }
  // Whether the other side ends the connection.
  bool is_closed_within(double seconds) {
    const Nanoseconds until = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
    while (now_ns() < until) {
      pollfd readable{fd_, POLLIN, 0};
      if (::poll(&readable, 1, 10) <= 0) continue;
      char buffer[4096];
      if (::recv(fd_, buffer, sizeof buffer, 0) <= 0) return true;
    }
    return false;
  }

 private:
  static std::string named(const std::string& text) { return static_cast<char>(text.size()) + text; }
  void send(const std::string& bytes) { static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL)); }

  int fd_;
};

// Connected to a port of this machine.
inline int connected_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    ADD_FAILURE() << "cannot connect";
  return fd;
}

// Of this process: address space that it has taken, and memory that it has touched.
struct MemoryUse {
  std::int64_t reserved = 0, resident = 0;
};
inline MemoryUse memory_use() {
  MemoryUse use;
  std::ifstream("/proc/self/statm") >> use.reserved >> use.resident;
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  return {use.reserved * page, use.resident * page};
}

}  // namespace sluice::ps::test
