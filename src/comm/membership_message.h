// membership_message: the messages between the members of an elastic run (membership.h), one JSON line each.
// Errors: from_line() returns nothing for a line that is not a valid message.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "comm/regroup.h"

namespace sluice::comm {

inline constexpr int kNobody = -1;

struct MembershipMessage {
  enum class Kind {
    kHello,    // first, from both ends: number `member` (kNobody: a guest without one), host `text`, control address
               // addresses[member]; `token` proves that it belongs to the run
    kWelcome,  // to a guest: its number `member`, the group, and the control addresses of all that it must connect to
    kBeat,
    kLeave,         // the sender ends as planned
    kFailed,        // the sender ends with the error `text`
    kStopped,       // the sender was asked to stop before training
    kAcknowledged,  // answers kFailed and kStopped
    kText,          // `text` of the leader of group `number`
    kRegroup,       // `regroup`
  };

  Kind kind = Kind::kBeat;
  int member = 0, number = 0;
  std::string token, text;
  std::map<int, std::string> addresses;
  RegroupMessage regroup = {};

  [[nodiscard]] std::string to_line() const;  // a long `text` is truncated
  [[nodiscard]] static std::optional<MembershipMessage> from_line(std::string_view line);
};

}  // namespace sluice::comm
