// control_message: the messages of the control connections between processes, one JSON line each.
// Errors: from_line() returns nothing for a line that is not a valid message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/lost_process.h"

namespace sluice::comm {

inline constexpr std::size_t kLongestControlLine = 1 << 16;

struct ControlMessage {
  enum class Kind {
    kHello,    // to rank 0: rank `lost.rank` on host `lost.host` starts; `token` proves that it belongs to the run
    kWelcome,  // from rank 0: all processes are connected
    kHeartbeat,
    kLeave,
    kLost,
    kAcknowledged,  // answers the last kLeave or kLost
  };

  Kind kind = Kind::kHeartbeat;
  std::string token;
  LostProcess lost;

  [[nodiscard]] std::string to_line() const;  // at most kLongestControlLine bytes; a longer reason is truncated
  [[nodiscard]] static std::optional<ControlMessage> from_line(std::string_view line);
};

}  // namespace sluice::comm
