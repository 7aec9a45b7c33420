#include "config/rules.h"
#include "core/concat.h"

namespace sluice::config {
namespace {

void check_shares(const Config& config, const Sources& sources) {
  const ReplicasConfig& replicas = config.replicas;
  if (replicas.shares.is_equal()) return;
  const bool is_measured = replicas.shares.is_measured();
  const auto needs = [&](bool ok, std::string_view key, const std::string& why) {
    sources.require(
        ok, {"replicas.shares", key},
        concat("replicas.shares", is_measured ? "=\"measured\"" : " as a list", " cannot be combined with ", key, why));
  };
  needs(replicas.sync == "allreduce", "replicas.sync",
        concat("=\"", replicas.sync,
               "\": only all-reduce divides a batch among replicas; set replicas.shares=\"equal\""));
  needs(config.pipeline.batch_norm != "sync", "pipeline.batch_norm",
        "=\"sync\", which needs equally many micro-batches in all replicas; choose \"micro\" or \"deferred\"");
  needs(config.pipeline.order.empty(), "pipeline.order",
        ": a schedule file has a fixed number of micro-batches; choose a pipeline.schedule");
  needs(!config.device.cuda_graphs, "device.cuda_graphs",
        "=true, which needs equally many micro-batches in all replicas; choose false");
  if (is_measured) {
    needs(!config.train.deterministic || config.train.is_reproducible_by_layout(), "train.deterministic",
          "=true: measured times would decide the order of sums; set train.reproducible=\"layout\", or give a list");
    needs(config.profile.level != "off", "profile.level", "=\"off\": times are not recorded; choose \"events\"");
    return;
  }
  needs(!replicas.elastic, "replicas.elastic", "=true: the number of processes changes; choose \"measured\"");
  const FreezeConfig& freeze = config.freeze;
  const bool may_replicate = freeze.policy != "none" && freeze.elastic && freeze.replicas &&
                             config.pipeline.stages > 1 && !config.train.deterministic;
  needs(!may_replicate, "freeze.replicas",
        "=true: freezing changes the number of replicas; set it to false, or choose \"measured\"");
}

}  // namespace

void check_replicas(const Config& config, const Sources& sources) {
  const ReplicasConfig& replicas = config.replicas;
  sources.require(replicas.sync != "none" || replicas.local == 1, {"replicas.sync", "replicas.local"},
                  concat("replicas.sync=\"none\" leaves replicas.local=", replicas.local,
                         " replicas unsynchronised; use \"allreduce\" or replicas.local=1"));
  check_shares(config, sources);
}

}  // namespace sluice::config
