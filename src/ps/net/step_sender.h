// step_sender: sends workers what a step needs, the lease of its samples and the weights, and shard servers which
// worker begins with which weights. Threads: one. Errors: those of the socket and of ShardLink.
#pragma once

#include <utility>
#include <vector>

#include "data/ledger.h"
#include "ps/net/frame_socket.h"
#include "ps/net/members.h"
#include "ps/net/shard_link.h"
#include "ps/server.h"

namespace sluice::ps {

class StepSender {
 public:
  // All must outlive this object.
  StepSender(const Server& server, data::Ledger& ledger, FrameSocket& socket, std::vector<ShardLink*> others)
      : server_(server), ledger_(ledger), socket_(socket), others_(std::move(others)) {}

  void give_lease(Member& member);
  void send_lease(const Member& member);
  // Sends the newest weights; `version` must be theirs. is_again: the worker may lack the weights that it had before.
  void give_weights(Member& member, std::int64_t version, bool is_again = false);
  // Send the state of the worker to all shard servers: present, with the version of its weights, or removed.
  void announce(const Member& member, bool is_again = false);
  void announce_removal(const Member& member);

 private:
  const Server& server_;
  data::Ledger& ledger_;
  FrameSocket& socket_;
  std::vector<ShardLink*> others_;
};

}  // namespace sluice::ps
