// refusals: what is said of those who were turned away: which server is meant, what they have otherwise, and a line in
// the log. Strangers can ask for such lines, so there are only so many, and they are short.
// Threads: one. Errors: none.
#pragma once

#include <string>

#include "core/clock.h"
#include "ps/net/frame_socket.h"

namespace sluice::ps {

// "server 1 (10.0.0.2:29600)".
[[nodiscard]] std::string server_named(int number, const std::string& host, int port);
// Of one who does not answer: other keys are heard of by nobody.
[[nodiscard]] std::string about_keys(const Keys& keys);

class Refusals {
 public:
  // A warning, but for one that repeats the last one, or follows too many within a minute.
  void log(const std::string& who, const std::string& why, Nanoseconds now);
  // ", but " and the last one, to be said of somebody who has not come; empty: there was none.
  [[nodiscard]] std::string but_last() const { return last_.empty() ? std::string{} : ", but " + last_; }

 private:
  std::string last_;
  Nanoseconds minute_ = 0;  // when it began
  int logged_ = 0;          // in it
};

}  // namespace sluice::ps
