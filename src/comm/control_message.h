// control_message: what the processes of a run tell each other about being alive, one message a line.
// Errors: none; what cannot be read is no message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/lost_process.h"

namespace sluice::comm {

inline constexpr std::size_t kLongestControlLine = 8192;

struct ControlMessage {
  enum class Kind {
    kHello,         // to rank 0: lost.rank on lost.host begins; `token` proves that it belongs to the run
    kWelcome,       // to the others: everybody is here
    kHeartbeat,     // I am alive
    kLeave,         // I end as planned
    kLost,          // `lost` is no longer part of the run
    kAcknowledged,  // the last kLeave or kLost has come
  };

  Kind kind = Kind::kHeartbeat;
  std::string token;
  LostProcess lost;

  [[nodiscard]] std::string to_line() const;  // at most kLongestControlLine bytes: a reason that is too long is cut
  [[nodiscard]] static std::optional<ControlMessage> from_line(std::string_view line);
};

}  // namespace sluice::comm
