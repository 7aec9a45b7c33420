#include "comm/lost_process.h"

#include "core/concat.h"

namespace sluice::comm {

std::string LostProcess::describe() const {
  std::string who = concat("rank ", rank, " (host ", host, ")");
  switch (how) {
    case How::kDead: return concat(who, " died");
    case How::kHung:
      return concat(who, " has not answered for ", reason, ": it hangs, is stopped or has lost its network");
    case How::kFailed: return concat(who, " failed: ", reason);
    case How::kStopped: return concat(who, " was ", reason);
    case How::kGivenUp:
      return concat("the other processes dropped this process, ", who, ", because they received nothing from it for ",
                    reason, ": it was stopped or had lost its network");
  }
  return who;
}

}  // namespace sluice::comm
