#include <utility>

#include "config/rules.h"
#include "core/concat.h"

namespace sluice::config {
namespace {

// Refuses settings that cannot be combined with one key's value.
class Restrictions {
 public:
  Restrictions(const Config& config, const Sources& sources, std::string_view key, std::string value)
      : config_(config), sources_(sources), key_(key), value_(std::move(value)) {}

  void require(bool ok, std::string_view key, const std::string& why) const {
    sources_.require(ok, {key_, key}, concat(key_, value_, " cannot be combined with ", key, why));
  }

  void check_uneven_shares() const {
    const std::string& sync = config_.replicas.sync;
    require(sync == "allreduce", "replicas.sync",
            concat("=\"", sync, "\": only all-reduce divides a batch among replicas; set ", key_,
                   key_ == "replicas.shares" ? "=\"equal\"" : "=\"off\""));
    require(config_.pipeline.batch_norm != "sync", "pipeline.batch_norm",
            "=\"sync\", which needs equally many micro-batches in all replicas; choose \"micro\" or \"deferred\"");
    require(config_.pipeline.order.empty(), "pipeline.order",
            ": a schedule file has a fixed number of micro-batches; choose a pipeline.schedule");
    require(!config_.device.cuda_graphs, "device.cuda_graphs",
            "=true, which needs equally many micro-batches in all replicas; choose false");
  }

  void check_measured_times() const {
    require(!config_.train.deterministic || config_.train.is_reproducible_by_layout(), "train.deterministic",
            concat("=true: measured times would decide the order of sums; set train.reproducible=\"layout\"",
                   key_ == "replicas.shares" ? ", or give a list" : ""));
    require(config_.profile.level != "off", "profile.level", "=\"off\": times are not recorded; choose \"events\"");
  }

 private:
  const Config& config_;
  const Sources& sources_;
  std::string_view key_;
  std::string value_;
};

void check_shares(const Config& config, const Sources& sources) {
  const ReplicasConfig& replicas = config.replicas;
  if (replicas.shares.is_equal()) return;
  const bool is_measured = replicas.shares.is_measured();
  const Restrictions restrictions(config, sources, "replicas.shares", is_measured ? "=\"measured\"" : " as a list");
  restrictions.check_uneven_shares();
  if (is_measured) return restrictions.check_measured_times();
  restrictions.require(!replicas.elastic, "replicas.elastic",
                       "=true: the number of processes changes; choose \"measured\"");
  const FreezeConfig& freeze = config.freeze;
  const bool may_replicate = freeze.policy != "none" && freeze.elastic && freeze.replicas &&
                             config.pipeline.stages > 1 && !config.train.deterministic;
  restrictions.require(!may_replicate, "freeze.replicas",
                       "=true: freezing changes the number of replicas; set it to false, or choose \"measured\"");
}

void check_replan(const Config& config, const Sources& sources) {
  if (!config.pipeline.replans()) return;
  const Restrictions restrictions(config, sources, "pipeline.replan", "=\"auto\"");
  restrictions.check_uneven_shares();
  restrictions.check_measured_times();
  restrictions.require(config.pipeline.changes.empty(), "pipeline.changes",
                       ": both would change the plan; leave one out");
  restrictions.require(config.freeze.policy == "none", "freeze.policy",
                       concat("=\"", config.freeze.policy, "\", which changes the plan itself; choose \"none\""));
}

}  // namespace

void check_replicas(const Config& config, const Sources& sources) {
  const ReplicasConfig& replicas = config.replicas;
  sources.require(replicas.sync != "none" || replicas.local == 1, {"replicas.sync", "replicas.local"},
                  concat("replicas.sync=\"none\" leaves replicas.local=", replicas.local,
                         " replicas unsynchronised; use \"allreduce\" or replicas.local=1"));
  check_shares(config, sources);
  check_replan(config, sources);
}

}  // namespace sluice::config
