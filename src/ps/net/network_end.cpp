// The part of NetworkServer that ends the run.
#include <utility>
#include <variant>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "ps/net/network_server.h"

namespace sluice::ps {

void NetworkServer::check_for_end() {
  const std::string waited = human_duration(to_s(options_.connect_timeout));
  if (members_.empty()) {
    if (open_since_ && members_.last_one_left()) throw AllWorkersLeft("all workers have left before the run was over");
    if (now() - members_.empty_since() < options_.connect_timeout) return;
    throw PeerError(open_since_
                        ? concat("no worker has been connected for ", waited, "; start the workers again")
                        : concat(members_.last_one_left()
                                     ? "all workers have left before training began, and no other has joined within "
                                     : "no worker has joined within ",
                                 waited, refusals_.but_last(),
                                 "; start them with the same configuration and, with keys, the same keys"));
  }
  if (open_since_ || now() - begin_ < options_.connect_timeout) return;
  log_warning("after ", waited, " only ", counted(members_.all().size(), "worker"), " of the policy's ",
              server_.policy().workers, " joined: training begins without the others");
  server_.open(now());
  make_updates();
}

void NetworkServer::reject_all(const Over& over, Nanoseconds limit) {
  is_over_ = true;
  const Nanoseconds until = now() + limit;
  while (now() < until || (!rivals_.empty() && now() < until + options_.drain_timeout)) {
    socket_.wait(std::chrono::milliseconds(50));
    while (const auto received = socket_.next()) {
      const auto message = from_worker(received->frames.front());
      if (message && std::holds_alternative<Leaving>(*message)) rivals_.erase(received->routing_id);
      const auto* const hello = message ? std::get_if<Hello>(&*message) : nullptr;
      if (hello == nullptr || hello->abandons.number != 0) continue;
      if (socket_.send(received->routing_id, {header_of(FromServer(over))})) rivals_.insert(received->routing_id);
    }
  }
}

void NetworkServer::end(const Over& over) {
  is_over_ = has_sent_over_ = true;
  why_over_ = over;
  remove_leaving_workers();
  for (const auto& [worker, member] : members_.all()) send(member.routing_id, over);
  std::erase_if(
      rivals_, [&](const std::string& routing_id) { return !socket_.send(routing_id, {header_of(FromServer(over))}); });
  if (over.code == 0 && options_.journal == nullptr)
    for (ShardLink* other : options_.others) other->end({});
  const Nanoseconds until = now() + options_.drain_timeout;
  while ((!members_.empty() || !rivals_.empty() || was_over_) && now() < until) {
    socket_.wait(std::chrono::nanoseconds(until - now()));
    auto received = socket_.next();
    if (!received) continue;
    try {
      on_message(std::move(*received));
    } catch (const DivergedError&) {  // in a step that is no longer needed
    }
  }
}

bool NetworkServer::keep_alive_for_others(Nanoseconds limit) {
  if (options_.others.empty() || options_.journal == nullptr || why_over_.code != 0) return false;
  wait(limit);
  constexpr int kMostAtOnce = 64;
  for (int left = kMostAtOnce; left > 0 && socket_.next(); --left) {  // drops late messages of workers
  }
  return true;
}

}  // namespace sluice::ps
