// push_intake: assembles pushes at server 0 from their messages, until all shard servers hold their parts.
// Threads: one. Errors: DivergedError if a part is not finite; those of PartHolder::ask_for().
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ps/compression.h"
#include "ps/net/frames.h"
#include "ps/net/members.h"
#include "ps/net/messages.h"
#include "ps/net/shard_link.h"
#include "ps/server.h"

namespace sluice::ps {

[[noreturn]] void throw_not_finite(const Member& member, std::int64_t sequence);

class PushIntake {
 public:
  // `server` and `others` must outlive this object.
  PushIntake(const Server& server, const Compression& compression, std::vector<PartHolder*> others)
      : server_(server), compression_(compression), others_(std::move(others)) {}

  void on_push_ahead(Member& member, const PushAhead& ahead, const Frames& frames);
  // What to do about a push; nothing while a shard server's part is missing.
  struct Result {
    std::optional<PushAnswer> answer = {};
    bool is_incomplete = false;  // the worker must send it again
    std::optional<OwnPart> whole = {};
  };
  [[nodiscard]] Result on_push_made(Member& member, const PushMade& push, const Frames& frames);
  // Returns the member's waiting push if all shard servers hold their parts by now.
  [[nodiscard]] std::optional<OwnPart> take_whole(Member& member) const;
  void ask_again(const Member& member) const {
    if (member.own_part) ask_for_missing(others_, member.own_part->key());
  }
  [[nodiscard]] std::int64_t malformed() const { return malformed_; }

 private:
  [[nodiscard]] bool fits(const Member& member, const PushMade& push) const;
  [[nodiscard]] std::optional<Tensors> tensors_of(const PushMade& push, const Frames& frames) const;
  [[nodiscard]] bool others_hold(const Member& member, const PushKey& push) const;

  const Server& server_;
  Compression compression_;
  std::vector<PartHolder*> others_;
  std::int64_t malformed_ = 0;
};

}  // namespace sluice::ps
