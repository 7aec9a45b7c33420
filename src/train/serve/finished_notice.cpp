#include "train/serve/finished_notice.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"
#include "ps/net/frame_socket.h"
#include "ps/net/messages.h"
#include "train/serve/other_servers.h"
#include "train/setup/stop_signal.h"

namespace sluice::train {
namespace {

constexpr Nanoseconds kLongest = 10'000'000'000;
constexpr std::chrono::milliseconds kNextLook{50};

}  // namespace

void notify_late_workers(const Setup& setup, const ServerRole& role, const std::string& version_of_sluice) {
  if (role.part != ServerRole::Part::kServer) return;
  const config::Config& config = setup.config;
  const auto workers = static_cast<std::size_t>(config.ps.workers);
  const Nanoseconds limit = std::min(from_s(config.replicas.connect_timeout_s), kLongest);
  ps::FrameSocket socket(ps::FrameSocket::Role::kListening, {}, {}, role.keys);
  static_cast<void>(socket.take_over(listen_at_own_address(role)));
  log_info("Run already complete; answering late workers and servers for ", human_duration(to_s(limit)), ".");
  OtherServers others;  // their shards are empty; they still wait for a connection
  const ps::Layout nothing{.shards = std::vector<ps::Shard>(static_cast<std::size_t>(config.ps.servers))};
  others.connect({.setup = setup, .role = role, .version = version_of_sluice, .run = ps::unique_name()}, nothing);
  std::map<std::string, ps::WorkerId> greeted;  // by connection
  std::set<ps::WorkerId> notified;              // workers that acknowledged the end
  for (const OwnClock clock; clock.now() < limit && !StopSignal::requested();) {
    socket.wait(kNextLook);
    while (const auto received = socket.next()) {
      const auto message = ps::from_worker(received->frames.front());
      if (!message) continue;
      if (const auto* const hello = std::get_if<ps::Hello>(&*message)) greeted[received->routing_id] = hello->worker;
      const auto found = greeted.find(received->routing_id);
      if (std::holds_alternative<ps::Leaving>(*message) && found != greeted.end())
        notified.insert(found->second);
      else
        socket.send(received->routing_id, {ps::header_of(ps::FromServer(ps::Over{}))});
    }
    if (others.notify_connected() && notified.size() >= workers) return;
  }
}

std::jthread notify_late_workers_in_background(const Setup& setup, const ServerRole& role,
                                               const std::string& version_of_sluice) {
  return std::jthread([&setup, &role, version_of_sluice] {
    try {
      notify_late_workers(setup, role, version_of_sluice);
    } catch (const Error& error) {
      log_warning(error.what());
    }
  });
}

}  // namespace sluice::train
