// membership_message: the messages between the members of an elastic run (membership.h), one JSON line each.
// Errors: from_line() returns nothing for a line that is not a valid message.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/regroup.h"

namespace sluice::comm {

struct MembershipMessage {
  enum class Kind {
    kHello,  // first, from both ends: `member` on host `text`; `token` proves that it belongs to the run
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
  std::string token = {}, text = {};
  RegroupMessage regroup = {};

  [[nodiscard]] std::string to_line() const;  // a long `text` is truncated
  [[nodiscard]] static std::optional<MembershipMessage> from_line(std::string_view line);
};

}  // namespace sluice::comm
