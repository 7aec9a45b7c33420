// fuzz_socket: FrameSocket without a network, for one fuzzer each: what it puts into `incoming` comes in, and it says
// itself what becomes of what goes out and of time. In one source file of a program.
#pragma once

#include <chrono>
#include <cstdlib>
#include <deque>
#include <string>
#include <utility>

#include "ps/net/frame_socket.h"

namespace sluice::ps {
namespace fuzz {

inline std::deque<FrameSocket::Received> incoming;

inline void require(bool holds) {
  if (!holds) std::abort();
}

// The fuzzer's: a message of the server, and a wait for as long while nothing comes.
void look_at(const std::string& routing_id, const Frames& frames);
void let_pass(std::chrono::nanoseconds limit);

}  // namespace fuzz

struct FrameSocket::Zmq {};

FrameSocket::FrameSocket(Role role, const std::string&, Limits limits, const Keys&) : role_(role), limits_(limits) {}
FrameSocket::~FrameSocket() = default;
int FrameSocket::listen(const std::string&, int) { return 1; }
int FrameSocket::take_over(int) { return 1; }
std::string unique_name() { return "fuzzer"; }
void FrameSocket::connect(const std::string&, int) {}

bool FrameSocket::send(const std::string& routing_id, const Frames& frames) {
  fuzz::require(role_ == Role::kListening);
  fuzz::look_at(routing_id, frames);
  return true;
}

void FrameSocket::wait(std::chrono::nanoseconds limit, int, const std::vector<FrameSocket*>&) {
  if (fuzz::incoming.empty()) fuzz::let_pass(limit);
}

void FrameSocket::wait_to_send(std::chrono::nanoseconds, int) {}
void FrameSocket::trust(const std::string&) {}

std::optional<FrameSocket::Received> FrameSocket::next() {
  if (fuzz::incoming.empty()) return std::nullopt;
  Received received = std::move(fuzz::incoming.front());
  fuzz::incoming.pop_front();
  return received;
}

}  // namespace sluice::ps
