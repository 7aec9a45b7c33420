// refusals: texts and log lines about rejected peers: which server is meant, and what differs. Strangers can cause such
// lines, so their number and length are limited.
// Threads: one. Errors: never throws.
#pragma once

#include <string>

#include "core/clock.h"
#include "ps/net/frame_socket.h"
#include "ps/push.h"

namespace sluice::ps {

// "server 1 (10.0.0.2:29600)" and "worker 1 (HOST, process 7)"; `where` stands in the parentheses.
[[nodiscard]] std::string server_named(int number, const std::string& host, int port);
[[nodiscard]] std::string worker_named(WorkerId worker, const std::string& where);
// Advice for a peer that does not answer: a server ignores peers with other keys.
[[nodiscard]] std::string about_keys(const Keys& keys);

class Refusals {
 public:
  // Logs a warning, unless it repeats the last one or too many were logged within a minute.
  void log(const std::string& who, const std::string& why, Nanoseconds now);
  // ", but " and the last refusal, for an error about a missing peer; empty if there was no refusal.
  [[nodiscard]] std::string but_last() const { return last_.empty() ? std::string{} : ", but " + last_; }

 private:
  std::string last_;
  Nanoseconds minute_ = 0;  // when the current minute began
  int logged_ = 0;
};

}  // namespace sluice::ps
