#include "comm/lost_process.h"

#include "core/concat.h"

namespace sluice::comm {

std::string LostProcess::describe() const {
  std::string who = concat("rank ", rank, " (host ", host, ")");
  switch (how) {
    case How::kDead: return concat(who, " died");
    case How::kHung: return concat(who, " has not answered for ", reason, ": it hangs, is stopped or cut off");
    case How::kFailed: return concat(who, " failed: ", reason);
    case How::kStopped: return concat(who, " was ", reason);
    case How::kGivenUp:
      return concat("this process, ", who, ", was given up by the others: they had not heard of it for ", reason,
                    ", because it was stopped or cut off");
  }
  return who;
}

}  // namespace sluice::comm
