#include "train/serve/other_servers.h"

#include <algorithm>
#include <utility>

#include "core/concat.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "train/serve/server_events.h"
#include "train/serve/shard_run.h"
#include "train/setup/stop_signal.h"

namespace sluice::train {
namespace {

bool by_launch(const config::Config& config) { return config.ps.placement == "rank0"; }

std::string start_advice(const config::Config& config, int server) {
  return by_launch(config) ? concat("start rank ", server, " of the launch, which is this server")
                           : concat("start it with: sluice serve CONFIG --server ", server);
}

std::string resume_advice(const config::Config& config, int server) {
  if (by_launch(config)) return "start the launch again with --resume auto";
  if (config.ps.log == "off") return "start all servers again, server 0 with --resume auto";
  return concat("start it again with: sluice serve CONFIG --server ", server, ", and server 0 with --resume auto");
}

std::string find_kept_advice(int server, bool has_checkpoint) {
  return concat("start server ", server, " with its previous --run-dir, which has them in servers/", server,
                has_checkpoint
                    ? "; or, to resume from a checkpoint without later updates, pass --resume RUN/checkpoints/step-N"
                    : "; there is no checkpoint to resume from without them");
}

}  // namespace

void OtherServers::connect(const Run& run, const ps::Layout& layout) {
  const config::Config& config = run.setup.config;
  const int servers = config.ps.servers;
  for (int i = 1; i < servers; ++i) {
    const ps::ServerAddress& at = run.role.others[static_cast<std::size_t>(i - 1)];
    ranges_.push_back(ps::shards_of_server(layout, i, servers));
    all_.push_back(std::make_unique<ps::ShardLink>(
        ps::ShardLinkOptions{.host = at.host,
                             .port = at.port,
                             .keys = run.role.keys,
                             .number = i,
                             .where = process_name(),
                             .agreement = agreement_of_servers(config, run.version),
                             .assignment = {layout, ranges_.back()},
                             .run = run.run,
                             .start = start_advice(config, i),
                             .start_anew = resume_advice(config, i),
                             .find_kept = find_kept_advice(i, run.has_checkpoint),
                             .may_come_back = config.ps.log != "off",
                             .peer_timeout = from_s(config.replicas.hang_timeout_s),
                             .connect_timeout = from_s(config.replicas.connect_timeout_s),
                             // After the start, a stop needs the servers' weights for a save.
                             .is_stopped = [this] { return !have_started_ && is_stopped(); }}));
  }
  std::vector<std::string> names;
  for (const auto& other : all_) names.push_back(other->named());
  if (servers > 1) log_info("waiting for ", join(names, ", "));
}

bool OtherServers::is_stopped() const {
  for (const auto& other : all_) {
    other->look();
    if (!other->why_to_stop().empty()) throw InterruptedError(other->why_to_stop());
  }
  return StopSignal::requested();
}

void OtherServers::load(const std::vector<at::Tensor>& shards, const ps::NamedStates& optimizer, std::int64_t version) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    ps::ShardsState state{.values = ps::part_of(shards, ranges_[i])};
    for (const auto& [name, of_shards] : optimizer)
      state.optimizer.emplace_back(name, ps::part_of(of_shards, ranges_[i]));
    all_[i]->load(state, version);
  }
  have_started_ = true;
}

void OtherServers::resume(std::int64_t version) {
  for (const auto& other : all_) other->resume(version);
  have_started_ = true;
}

std::vector<ps::ShardLink*> OtherServers::links() const {
  std::vector<ps::ShardLink*> links;
  for (const auto& other : all_) links.push_back(other.get());
  return links;
}

std::vector<ps::OtherShards*> OtherServers::as_shards() const {
  std::vector<ps::OtherShards*> shards;
  for (const auto& other : all_) shards.push_back(other.get());
  return shards;
}

bool OtherServers::is_any_lost() const {
  return std::ranges::any_of(all_, [](const auto& other) { return other->is_lost(); });
}

bool OtherServers::notify_connected() {
  std::erase_if(all_, [](const auto& other) {
    try {
      other->look();
      if (!other->is_here()) return false;
      other->end({});
    } catch (const Error& error) {  // the other servers still get the message
      log_warning(error.what());
    }
    return true;
  });
  return all_.empty();
}

void OtherServers::end(const std::optional<Error>& failure) {
  const ps::Over over = failure ? ending_of(*failure) : ps::Over{};
  if (!std::exchange(have_ended_, true))
    for (const auto& other : all_) other->end({over.code, over.what});
}

}  // namespace sluice::train
