#include <algorithm>

#include "config/addresses.h"
#include "config/rules.h"
#include "core/concat.h"

namespace sluice::config {
namespace {

class PsRules {
 public:
  PsRules(const Config& config, const Sources& sources) : config_(config), sources_(sources) {}

  void check() const {
    const PsConfig& ps = config_.ps;
    const bool is_used = config_.replicas.has_server();
    require(is_used || ps == PsConfig{}, {"replicas.sync", "ps.policy"},
            concat("[ps] is set, but replicas.sync=\"", config_.replicas.sync,
                   "\"; set replicas.sync=\"ps\" or remove [ps]"));
    if (!is_used) return;
    require(config_.train.steps > 0, {"train.steps", "train.epochs"},
            "with a parameter server, the length of a run is a number of updates; set train.steps");
    check_addresses();
    check_worker_processes();
    check_local_training();
    check_dual_batch();
    check_delay();
    check_compression();
    require(config_.freeze.policy == "none" && config_.pipeline.changes.empty(), {"freeze.policy", "pipeline.changes"},
            "workers of a parameter server cannot change their plan; remove freeze.policy and pipeline.changes");
    require(!config_.replicas.elastic, {"replicas.elastic", "replicas.sync"},
            "replicas.elastic cannot be combined with replicas.sync=\"ps\": a server goes on without lost workers "
            "anyway; remove it");
    require(config_.model.lora_rank == 0, {"model.lora_rank", "replicas.sync"},
            concat("model.lora_rank=", config_.model.lora_rank,
                   " freezes weights, but a parameter server gives its workers only those that are trained; set it to "
                   "0, or choose replicas.sync=\"allreduce\""));
    require(!config_.data.by_length, {"data.by_length", "replicas.sync"},
            "data.by_length does not apply to a parameter server, which leases samples in their order; remove it");
    require(ps.policy != "amb" || ps.time_limit_s > 0, {"ps.policy", "ps.time_limit_s"},
            "ps.policy=\"amb\" needs ps.time_limit_s above 0");
    require(ps.partitions == 0 || config_.pipeline.chunks.value_or(1) == 1 || config_.pipeline.chunks == ps.partitions,
            {"ps.partitions", "pipeline.chunks"},
            "ps.partitions sets the number of micro-batches; remove pipeline.chunks");
    check_time_limit();
    require(config_.pipeline.batch_norm == "micro", {"pipeline.batch_norm", "replicas.sync"},
            concat("pipeline.batch_norm=\"", config_.pipeline.batch_norm,
                   "\" needs statistics over all replicas, but workers of a parameter server run independently; set "
                   "\"micro\""));
    const std::int64_t batch = step_batch(config_);
    const std::int64_t slices = std::max({ps.partitions, config_.pipeline.chunks.value_or(1), 1});
    require(batch >= slices && batch >= config_.train.micro_batch,
            {"ps.worker_batch", "ps.workers", "ps.partitions", "pipeline.chunks", "train.micro_batch"},
            concat("a worker's step has ", batch,
                   " samples (ps.worker_batch, or train.global_batch / ps.workers), too few for ",
                   batch < slices ? concat(slices, " micro-batches")
                                  : concat("train.micro_batch=", config_.train.micro_batch)));
    require(config_.replicas.bucket_type == "full", {"replicas.bucket_type", "replicas.sync"},
            concat("replicas.bucket_type=\"", config_.replicas.bucket_type,
                   "\" is for all-reduce; remove it and set ps.push_compression"));
    check_samples();
    check_whole_parameters();
    check_evaluations();
  }

 private:
  void check_samples() const {
    require(config_.data.order != "shards", {"data.order", "replicas.sync"},
            "data.order=\"shards\" cannot be combined with replicas.sync=\"ps\", whose server assigns the samples; "
            "remove it");
    require(config_.data.mixup == 0 && config_.data.cutmix == 0, {"data.mixup", "data.cutmix", "replicas.sync"},
            "data.mixup and data.cutmix mix the samples of a batch, but the server assigns samples one by one; remove "
            "both with replicas.sync=\"ps\"");
  }

  void check_whole_parameters() const {
    const auto& train = config_.train;
    const auto refuse = [&](bool is_set, std::string_view key) {
      require(!is_set, {key, "replicas.sync"},
              concat(key,
                     " needs whole parameters, but a parameter server keeps parts of them; remove it with "
                     "replicas.sync=\"ps\""));
    };
    refuse(train.optimizer == "lamb", "train.optimizer");
    refuse(!train.no_decay.empty(), "train.no_decay");
    refuse(train.head_lr != 1, "train.head_lr");
    refuse(train.ema_decay > 0, "train.ema_decay");
    require(
        train.noise_scale_every_steps == 0, {"train.noise_scale_every_steps", "replicas.sync"},
        "train.noise_scale_every_steps compares the replicas' gradients of one step, but workers of a parameter server "
        "push theirs one by one; remove it with replicas.sync=\"ps\"");
  }

  void check_evaluations() const {
    const bool is_plateau = config_.train.lr_schedule == "plateau";
    require(!is_plateau && config_.train.stop_patience == 0,
            {"train.lr_schedule", "train.stop_patience", "replicas.sync"},
            concat(is_plateau ? "train.lr_schedule=\"plateau\"" : "train.stop_patience",
                   " depends on evaluations, but workers of a parameter server continue during one; remove it with "
                   "replicas.sync=\"ps\""));
  }

  void check_delay() const {
    const PsConfig& ps = config_.ps;
    if (ps.nesterov_delay == 0) return;
    const bool is_diloco = ps.policy == "diloco";
    require(ps.policy == "asp" || ps.policy == "ssp" || (is_diloco && ps.quorum == 1),
            {"ps.nesterov_delay", "ps.policy", "ps.quorum"},
            concat("ps.nesterov_delay=", ps.nesterov_delay, " cannot be combined with ps.policy=\"", ps.policy,
                   "\"; it is for \"asp\", \"ssp\", and \"diloco\" with ps.quorum=1: there, each push is an update"));
    const bool by_optimizer = config_.train.optimizer == "momentum" && config_.train.nesterov;
    require(is_diloco ? ps.outer_momentum > 0 : by_optimizer,
            {"ps.nesterov_delay", "train.optimizer", "train.nesterov", "ps.outer_momentum"},
            concat("ps.nesterov_delay=", ps.nesterov_delay, " delays Nesterov's momentum; set ",
                   is_diloco ? "ps.outer_momentum" : "train.optimizer=\"momentum\" and train.nesterov=true"));
  }

  // Top-k sends the omitted part with the next message. That is correct for sums, but not for weights that replace the
  // old ones.
  void check_compression() const {
    const PsConfig& ps = config_.ps;
    const bool has_topk = ps.push_compression == "topk" || ps.pull_compression == "topk";
    require(has_topk || ps.topk_ratio == PsConfig{}.topk_ratio,
            {"ps.topk_ratio", "ps.push_compression", "ps.pull_compression"},
            concat("ps.topk_ratio=", ps.topk_ratio,
                   R"( is for ps.push_compression or ps.pull_compression = "topk"; remove it)"));
    if (ps.push_compression == "none" && ps.pull_compression == "none") return;
    require(ps.policy != "dual_batch" && ps.policy != "local_sgd",
            {"ps.push_compression", "ps.pull_compression", "ps.policy"},
            concat("ps.push_compression and ps.pull_compression cannot be combined with ps.policy=\"", ps.policy,
                   "\", whose workers push weights: the omitted part would be lost; remove them, or set \"diloco\", "
                   "which pushes weight changes"));
  }

  void check_time_limit() const {
    const auto& schedule = config_.pipeline.schedule;
    require(
        config_.ps.time_limit_s == 0 || ((schedule == "1f1b" || schedule == "gpipe") && config_.pipeline.order.empty()),
        {"ps.time_limit_s", "pipeline.schedule", "pipeline.order"},
        concat("ps.time_limit_s cannot be combined with ",
               config_.pipeline.order.empty() ? "pipeline.schedule=\"" + schedule + "\"" : "pipeline.order",
               config_.pipeline.order.empty() ? "; set pipeline.schedule to \"1f1b\" or \"gpipe\""
                                              : "; remove pipeline.order"));
  }

  void check_addresses() const {
    const std::vector<std::string> addresses = addresses_in(config_.ps.address);
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      require(!addresses[i].empty(), {"ps.address"},
              concat("ps.address=\"", config_.ps.address,
                     "\" has an empty entry; write the HOST:PORT of each server, separated by commas"));
      const auto first = static_cast<std::size_t>(std::ranges::find(addresses, addresses[i]) - addresses.begin());
      require(first == i, {"ps.address"},
              concat("ps.address names ", addresses[i], " twice, for servers ", first, " and ", i,
                     "; use a different address for each server"));
    }
  }

  void check_worker_processes() const {
    const PsConfig& ps = config_.ps;
    const PsConfig defaults;
    const bool is_virtual = ps.clock == "virtual";
    require(config_.replicas.local == 1 || !(is_virtual || ps.time_limit_s > 0), {"replicas.local", "ps.clock"},
            concat("replicas.local=", config_.replicas.local, ", but a worker ",
                   is_virtual ? "in virtual time" : "with ps.time_limit_s", " has one replica; set replicas.local=1"));
    const bool plans_batches = ps.policy == "dual_batch";
    require(
        is_virtual || ((plans_batches || (ps.sample_s == defaults.sample_s && ps.step_s == 0)) && ps.bytes_per_s == 0),
        {"ps.clock", "ps.sample_s", "ps.step_s", "ps.bytes_per_s"},
        "ps.sample_s, ps.step_s and ps.bytes_per_s are for virtual time; remove them with ps.clock=\"real\"");
    if (is_virtual) check_virtual_server();
  }

  void check_virtual_server() const {
    const PsConfig& ps = config_.ps;
    const PsConfig defaults;
    require(ps.log == defaults.log, {"ps.clock", "ps.log"}, "a run in virtual time cannot resume; remove ps.log");
    require(
        ps.placement == defaults.placement && ps.address.empty() && ps.keys.empty() && ps.servers == defaults.servers,
        {"ps.clock", "ps.placement", "ps.address", "ps.keys", "ps.servers"},
        "with ps.clock=\"virtual\", the server and its workers are one process; remove ps.placement, ps.address, "
        "ps.keys and ps.servers");
  }

  void check_local_training() const {
    const PsConfig& ps = config_.ps;
    const PsConfig defaults;
    const bool is_dual = ps.policy == "dual_batch", is_diloco = ps.policy == "diloco",
               is_local = ps.policy == "local_sgd";
    require(ps.local_steps == 0 || is_diloco || is_local, {"ps.local_steps", "ps.policy"},
            concat("ps.local_steps=", ps.local_steps, " cannot be combined with ps.policy=\"", ps.policy,
                   "\", whose workers make no local steps; remove it, or set \"local_sgd\" or \"diloco\""));
    require_policy("diloco", "ps.outer_lr", ps.outer_lr != defaults.outer_lr);
    require_policy("diloco", "ps.outer_momentum", ps.outer_momentum != defaults.outer_momentum);
    const bool trains_alone = is_dual || is_diloco || is_local;
    require(!trains_alone || (ps.time_limit_s == 0 && ps.lr_by == defaults.lr_by),
            {"ps.time_limit_s", "ps.lr_by", "ps.policy"},
            "ps.time_limit_s and ps.lr_by are for policies whose workers push gradients; remove them");
  }

  void check_dual_batch() const {
    const PsConfig& ps = config_.ps;
    const PsConfig defaults;
    require_policy("dual_batch", "ps.small_workers", ps.small_workers != 0);
    require_policy("dual_batch", "ps.extra_time", ps.extra_time != defaults.extra_time);
    require_policy("dual_batch", "ps.merge", ps.merge != defaults.merge);
    require(ps.policy != "dual_batch" || ps.small_workers <= ps.workers, {"ps.small_workers", "ps.workers"},
            concat("ps.small_workers=", ps.small_workers, " > ps.workers=", ps.workers,
                   "; set ps.small_workers to at most ps.workers"));
  }

  void require_policy(std::string_view policy, std::string_view key, bool is_set) const {
    require(!is_set || config_.ps.policy == policy, {key, "ps.policy"},
            concat(key, " is only for ps.policy=\"", policy, "\", but the policy is \"", config_.ps.policy,
                   "\"; remove ", key));
  }

  void require(bool ok, std::initializer_list<std::string_view> keys, const std::string& what) const {
    sources_.require(ok, keys, what);
  }

  const Config& config_;
  const Sources& sources_;
};

}  // namespace

void check_parameter_server(const Config& config, const Sources& sources) { PsRules(config, sources).check(); }

}  // namespace sluice::config
