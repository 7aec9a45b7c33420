#include "config/rules.h"

#include <algorithm>
#include <functional>

#include "config/value.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::config {
namespace {

std::string what_nesterov_needs(const TrainConfig& train) {
  return concat(R"(train.nesterov=true needs train.optimizer="momentum" and train.momentum > 0; found ")",
                train.optimizer, R"(" and )", train.momentum);
}

void add_unread_keys_of_rates(const TrainConfig& train, std::vector<UnreadKey>& unread) {
  struct Key {
    std::string_view name;
    bool is_set;
    std::vector<std::string_view> schedules;
  };
  const std::vector<Key> keys{
      {"train.lr_decay_steps", !train.lr_decay_steps.empty(), {"step"}},
      {"train.lr_decay_epochs", !train.lr_decay_epochs.empty(), {"step"}},
      {"train.lr_decay_every", train.lr_decay_every > 0, {"step", "exponential"}},
      {"train.lr_decay_every_epochs", train.lr_decay_every_epochs > 0, {"step", "exponential"}},
      {"train.lr_power", train.lr_power != TrainConfig{}.lr_power, {"polynomial"}},
      {"train.lr_min", train.lr_min > 0, {"cosine", "linear", "polynomial", "plateau"}},
  };
  for (const auto& [name, is_set, schedules] : keys) {
    if (!is_set || std::ranges::find(schedules, train.lr_schedule) != schedules.end()) continue;
    unread.push_back({name, "train.lr_schedule",
                      concat(name, " is set, but train.lr_schedule=\"", train.lr_schedule,
                             "\" does not use it; remove it or choose ", schedules.size() > 1 ? "one of " : "",
                             join(std::vector<std::string>(schedules.begin(), schedules.end()), ", "))});
  }
  if (train.lr_schedule != "plateau" && train.lr_patience != TrainConfig{}.lr_patience) {
    unread.push_back(
        {"train.lr_patience", "train.lr_schedule",
         concat("train.lr_patience=", train.lr_patience, " is for train.lr_schedule=\"plateau\"; remove it")});
  }
}

void add_unread_keys_of_updates(const TrainConfig& train, std::vector<UnreadKey>& unread) {
  if (train.nesterov && train.optimizer != "momentum")
    unread.push_back({"train.nesterov", "train.optimizer", what_nesterov_needs(train)});
  if (train.amsgrad && train.optimizer != "adam" && train.optimizer != "adamw") {
    unread.push_back(
        {"train.amsgrad", "train.optimizer",
         concat("train.amsgrad=true is for train.optimizer=\"adam\" and \"adamw\"; found \"", train.optimizer, "\"")});
  }
  if (train.ema_every_steps != 1 && train.ema_decay == 0) {
    unread.push_back(
        {"train.ema_every_steps", "train.ema_decay",
         concat(
             "train.ema_every_steps=", train.ema_every_steps,
             " has no effect with train.ema_decay=0, which keeps no average of the weights; set train.ema_decay, for "
             "example to 0.9999")});
  }
}

void add_unread_keys_of_adapters(const ModelConfig& model, std::vector<UnreadKey>& unread) {
  const ModelConfig defaults;
  const std::pair<std::string_view, bool> keys[] = {{"model.lora_alpha", model.lora_alpha != defaults.lora_alpha},
                                                    {"model.lora_targets", !model.lora_targets.empty()},
                                                    {"model.lora_dropout", model.lora_dropout != 0},
                                                    {"model.lora_weights", !model.lora_weights.empty()}};
  for (const auto& [name, is_set] : keys) {
    if (!is_set || model.lora_rank > 0) continue;
    unread.push_back({name, "model.lora_rank",
                      concat(name,
                             " is set, but model.lora_rank=0 makes no adapters; set model.lora_rank, for example "
                             "to 8, or remove ",
                             name)});
  }
}

class Rules {
 public:
  Rules(const Config& config, const Sources& sources) : config_(config), sources_(sources) {}

  void check() const {
    check_length();
    require(config_.model.lora_weights.empty() || !config_.model.weights.empty(),
            {"model.lora_weights", "model.weights"},
            "model.lora_weights is set, but model.weights is empty; set it to the weights below the adapters");
    const bool is_exported = config_.model.name == "pt2";
    require(config_.model.file.empty() || is_exported, {"model.file", "model.name"},
            "model.file is set, but model.name is not \"pt2\"; set model.name = \"pt2\", or remove model.file");
    require(!config_.model.file.empty() || !is_exported, {"model.file", "model.name"},
            "model.name = \"pt2\" needs model.file; export a model with scripts/export_model.py, and set it");
    check_parameter_server(config_, sources_);
    check_replicas(config_, sources_);
    check_batches();
    check_micro_batch();
    check_reproducible();
    check_schedule_file();
    check_freezing();
    check_views();
    check_feature_cache();
    check_devices();
    check_optimizer();
    check_lr_schedule();
    check_average();
    check_evaluation();
    for (const auto& [key, of, why] : unread_keys(config_)) require(false, {key, of}, why);
  }

 private:
  void require(bool ok, std::initializer_list<std::string_view> keys, const std::string& what) const {
    sources_.require(ok, keys, what);
  }

  void check_length() const {
    const auto& train = config_.train;
    require(train.epochs > 0 || train.steps > 0, {"train.epochs", "train.steps"},
            "train.epochs and train.steps are both 0; set one of them above 0");
    require(train.steps == 0 || train.warmup_steps <= train.steps, {"train.warmup_steps", "train.steps"},
            concat("train.warmup_steps=", train.warmup_steps, " > train.steps=", train.steps,
                   "; the warm-up must end within the run"));
  }

  void check_batches() const {
    const std::int64_t batch = step_batch(config_);
    const std::int64_t replicas = config_.replicas.local;
    require(batch >= replicas, {"train.global_batch", "replicas.local"},
            concat("train.global_batch=", batch, " < replicas.local=", replicas, "; every replica needs a sample"));
    const std::int64_t chunks = config_.pipeline.chunks.value_or(1);
    require(batch >= chunks * replicas, {"pipeline.chunks", "train.global_batch", "replicas.local"},
            concat("pipeline.chunks=", chunks, " x replicas.local=", replicas, " > train.global_batch=", batch,
                   "; every micro-batch needs a sample"));
  }

  // If chunks is 1 (the default) or "auto", it follows from the micro-batch. If both are given, their product must
  // divide the global batch for some number of processes, which is unknown here.
  void check_micro_batch() const {
    const std::int64_t batch = step_batch(config_);
    const std::int64_t micro_batch = config_.train.micro_batch;
    const std::int64_t chunks = config_.pipeline.chunks.value_or(1);
    const std::int64_t replicas = config_.replicas.local;
    if (micro_batch == 0) return;
    require(micro_batch * replicas <= batch || config_.train.is_reproducible_by_layout(),
            {"train.micro_batch", "train.global_batch", "replicas.local"},
            concat("train.micro_batch=", micro_batch, " x replicas.local=", replicas, " > train.global_batch=", batch,
                   "; choose a smaller micro-batch or a larger global batch"));
    require(chunks == 1 || batch % (micro_batch * chunks * replicas) == 0,
            {"train.micro_batch", "pipeline.chunks", "train.global_batch", "replicas.local"},
            concat("train.micro_batch=", micro_batch, " contradicts pipeline.chunks=", chunks,
                   ": their product with replicas.local=", replicas, " does not divide train.global_batch=", batch,
                   "; set only one of the two"));
  }

  void check_reproducible() const {
    const auto& train = config_.train;
    const auto& log = config_.log;
    require(!log.digest_layers || (train.is_reproducible_by_layout() && log.digest_every > 0),
            {"log.digest_layers", "log.digest_every", "train.reproducible"},
            "log.digest_layers needs log.digest_every above 0 and train.reproducible=\"layout\", which keeps the "
            "gradients of micro-batches apart; set them, or log.digest_layers=false");
    if (!train.is_reproducible_by_layout()) return;
    const auto needs = [&](bool ok, std::string_view key, const std::string& why) {
      require(ok, {"train.reproducible", key}, concat("train.reproducible=\"layout\" ", why));
    };
    needs(train.micro_batch > 0, "train.micro_batch",
          "needs train.micro_batch: the samples of a micro-batch decide the rounding; set it, for example to 16");
    needs(config_.device.threads > 0, "device.threads",
          "needs device.threads: the threads of a CPU device decide the rounding of some products; set it, for "
          "example to 1");
    needs(!config_.replicas.has_server(), "replicas.sync",
          "cannot be combined with replicas.sync=\"ps\", whose updates depend on the workers; choose \"allreduce\"");
    needs(config_.pipeline.batch_norm != "sync", "pipeline.batch_norm",
          "cannot be combined with pipeline.batch_norm=\"sync\", which normalises over the replicas; choose \"micro\" "
          "or \"deferred\"");
    needs(!config_.device.cuda_graphs, "device.cuda_graphs",
          "cannot be combined with device.cuda_graphs=true, which adds up gradients in place; choose false");
    needs(
        train.noise_scale_every_steps == 0, "train.noise_scale_every_steps",
        "cannot be combined with train.noise_scale_every_steps, which compares the gradients of replicas; set it to 0");
  }

  void check_schedule_file() const {
    const auto& pipeline = config_.pipeline;
    const std::string by_default = PipelineConfig{}.schedule;
    require(pipeline.order.empty() || pipeline.schedule == by_default, {"pipeline.order", "pipeline.schedule"},
            concat("pipeline.order=", to_text(Value{pipeline.order}), " cannot be combined with pipeline.schedule=\"",
                   pipeline.schedule, "\": the file replaces the schedule; remove one of the two (\"", by_default,
                   "\" is the default)"));
  }

  void check_freezing() const {
    const auto& freeze = config_.freeze;
    const auto& pipeline = config_.pipeline;
    require(freeze.policy != "schedule" || !freeze.schedule.empty(), {"freeze.schedule", "freeze.policy"},
            R"(freeze.policy="schedule" needs freeze.schedule, for example ["3: 7", "5: 9"])");
    if (freeze.policy == "none") return;
    const char* const exact = config_.train.is_reproducible_by_layout() ? "train.reproducible"
                              : config_.train.deterministic             ? "train.deterministic"
                              : config_.replicas.elastic                ? "replicas.elastic"
                                                                        : nullptr;
    if (exact != nullptr) {
      require(!freeze.policy.starts_with("gradient"), {"freeze.policy", exact},
              concat("freeze.policy=\"", freeze.policy, "\" cannot be combined with ", exact,
                     ": a resumed run would decide by another interval; choose linear or schedule"));
    }
    require(pipeline.changes.empty(), {"freeze.policy", "pipeline.changes"},
            concat("freeze.policy=\"", freeze.policy,
                   "\" cannot be combined with pipeline.changes: both change the plan; remove one of them"));
    require(pipeline.order.empty(), {"freeze.policy", "pipeline.order"},
            concat("freeze.policy=\"", freeze.policy,
                   "\" cannot be combined with pipeline.order: a schedule file has a fixed number of stages; choose a "
                   "pipeline.schedule"));
  }

  void check_views() const {
    const auto& data = config_.data;
    require(data.views == 0 || data.has_random_views(),
            {"data.views", "data.crop_area", "data.crop_padding", "data.flip"},
            concat("data.views=", data.views,
                   " needs a crop, flip or other random change of images: without one, all views of a sample are the "
                   "same; remove data.views"));
    require(data.crop_area == 0 || data.crop_padding == 0, {"data.crop_area", "data.crop_padding"},
            concat("data.crop_area=", data.crop_area, " cannot be combined with data.crop_padding=", data.crop_padding,
                   ": both are random crops; remove one of them"));
  }

  void check_feature_cache() const {
    const auto& freeze = config_.freeze;
    const auto& data = config_.data;
    if (freeze.cache == "off" || freeze.policy == "none") return;
    require(freeze.cache_disk_bytes.bytes == 0 || freeze.cache != "memory", {"freeze.cache_disk_bytes", "freeze.cache"},
            "freeze.cache_disk_bytes is for freeze.cache=\"disk\" or \"auto\"; found \"memory\"");
    const bool is_by_layout = config_.train.is_reproducible_by_layout();
    require(!config_.train.deterministic || is_by_layout, {"freeze.cache", "train.deterministic"},
            concat("freeze.cache=\"", freeze.cache,
                   "\" cannot be combined with train.deterministic: a resumed run begins with an empty cache, and "
                   "recomputed features may differ in the last bit; choose freeze.cache=\"off\""));
    require(!is_by_layout || freeze.cache_precision == "full", {"freeze.cache_precision", "train.reproducible"},
            "freeze.cache_precision=\"bf16\" cannot be combined with train.reproducible: only features from the cache "
            "would be rounded; choose \"full\"");
    require(data.views > 0 || !data.has_random_views(), {"freeze.cache", "data.views"},
            concat("freeze.cache=\"", freeze.cache,
                   "\" needs data.views with crops, flips or other random changes that are new in each epoch: no view "
                   "would repeat; set data.views to the number of views per sample, for example 3"));
    require(data.mixup == 0 && data.cutmix == 0, {"freeze.cache", "data.mixup", "data.cutmix"},
            concat("freeze.cache=\"", freeze.cache,
                   "\" cannot be combined with data.mixup or data.cutmix: no mix of two samples repeats; choose "
                   "freeze.cache=\"off\""));
    require(
        config_.data.broken == "fatal", {"freeze.cache", "data.broken"},
        concat("freeze.cache=\"", freeze.cache,
               "\" cannot be combined with data.broken=\"skip\": features are kept by sample, and another sample may "
               "replace it; choose \"fatal\" or freeze.cache=\"off\""));
    require(freeze.cache != "memory" || freeze.cache_bytes.bytes > 0, {"freeze.cache", "freeze.cache_bytes"},
            "freeze.cache=\"memory\" needs freeze.cache_bytes above 0");
    require(freeze.cache != "disk" || freeze.cache_disk_bytes.bytes > 0, {"freeze.cache", "freeze.cache_disk_bytes"},
            "freeze.cache=\"disk\" needs freeze.cache_disk_bytes, for example \"20GiB\"");
  }

  void check_devices() const {
    const auto& pipeline = config_.pipeline;
    if (pipeline.partition) {
      require(pipeline.partition->size() % static_cast<std::size_t>(pipeline.stages) == 0,
              {"pipeline.partition", "pipeline.stages"},
              concat("pipeline.partition has ", pipeline.partition->size(),
                     " entries, but pipeline.stages=", pipeline.stages, "; list one number of layers per stage"));
    }
    check_recompute();
    check_graphs();
    const std::int64_t wanted = std::int64_t{pipeline.stages} * config_.replicas.local;
    const auto named = static_cast<std::int64_t>(config_.device.list.names.size());
    require(named == 0 || named >= wanted, {"device.list", "pipeline.stages", "replicas.local"},
            concat("device.list names ", named, " devices, but pipeline.stages=", pipeline.stages,
                   " x replicas.local=", config_.replicas.local, " needs ", wanted,
                   " per process; name one per stage and replica (repeats allowed)"));
  }

  // A CUDA graph cannot read values on the host or send any to it.
  void check_graphs() const {
    if (!config_.device.cuda_graphs) return;
    require(
        config_.pipeline.batch_norm == "micro", {"device.cuda_graphs", "pipeline.batch_norm"},
        concat("device.cuda_graphs=true cannot be combined with pipeline.batch_norm=\"", config_.pipeline.batch_norm,
               "\", whose statistics leave the graph during a micro-batch; choose \"micro\" or "
               "device.cuda_graphs=false"));
    require(!config_.replicas.has_server(), {"device.cuda_graphs", "replicas.sync"},
            "device.cuda_graphs=true cannot be combined with replicas.sync=\"ps\", whose workers may skip "
            "micro-batches; choose \"allreduce\" or device.cuda_graphs=false");
    require(config_.profile.level != "torch", {"device.cuda_graphs", "profile.level"},
            "device.cuda_graphs=true cannot be combined with profile.level=\"torch\", which records "
            "operators: graphs call none; choose another level or device.cuda_graphs=false");
  }

  // An automatic partition uses layer costs, which are computed before it is known which stages recompute.
  void check_recompute() const {
    const auto& pipeline = config_.pipeline;
    if (pipeline.recompute.stages.empty()) return;
    require(std::ranges::find(pipeline.recompute.stages, "auto") == pipeline.recompute.stages.end(),
            {"pipeline.recompute"},
            R"(pipeline.recompute lists "auto", which is a word for all stages; write "none" or "layer")");
    require(pipeline.partition.has_value(), {"pipeline.recompute", "pipeline.partition"},
            "pipeline.recompute is a list, but pipeline.partition is \"auto\"; set the layers of each stage, too");
    require(config_.freeze.policy == "none", {"pipeline.recompute", "freeze.policy"},
            concat("pipeline.recompute cannot be a list with freeze.policy=\"", config_.freeze.policy,
                   "\", whose plans have other stages; set one word for all stages"));
    require(pipeline.recompute.stages.size() == pipeline.partition->size(),
            {"pipeline.recompute", "pipeline.partition"},
            concat("pipeline.recompute has ", pipeline.recompute.stages.size(), " entries, but pipeline.partition has ",
                   pipeline.partition->size(), "; list one word per stage"));
  }

  void check_optimizer() const {
    const auto& train = config_.train;
    require(!train.nesterov || train.optimizer != "momentum" || train.momentum > 0,
            {"train.nesterov", "train.optimizer", "train.momentum"}, what_nesterov_needs(train));
  }

  void check_average() const {
    const auto& train = config_.train;
    require(train.ema_decay == 0 || config_.freeze.policy == "none", {"train.ema_decay", "freeze.policy"},
            concat("train.ema_decay=", train.ema_decay, " cannot be combined with freeze.policy=\"",
                   config_.freeze.policy, "\": frozen layers have no average of their own; remove one of the two"));
  }

  void check_evaluation() const {
    const auto& train = config_.train;
    require(train.eval_every_steps == 0 || train.eval_every_epochs == 1,
            {"train.eval_every_epochs", "train.eval_every_steps"},
            "train.eval_every_steps and train.eval_every_epochs are both set; remove one of them");
  }

  void check_lr_schedule() const {
    const auto& train = config_.train;
    require(train.lr_min <= train.lr, {"train.lr_min", "train.lr"},
            concat("train.lr_min=", train.lr_min, " > train.lr=", train.lr, "; choose a smaller train.lr_min"));
    const int intervals = (train.lr_decay_every > 0 ? 1 : 0) + (train.lr_decay_every_epochs > 0 ? 1 : 0);
    const int lists = (train.lr_decay_steps.empty() ? 0 : 1) + (train.lr_decay_epochs.empty() ? 0 : 1);
    require(train.lr_schedule != "step" || intervals + lists > 0, {"train.lr_schedule"},
            "train.lr_schedule=\"step\" needs train.lr_decay_steps (for example [1000, 2000]), train.lr_decay_every, "
            "train.lr_decay_epochs or train.lr_decay_every_epochs");
    require(train.lr_schedule != "exponential" || intervals > 0, {"train.lr_schedule"},
            "train.lr_schedule=\"exponential\" needs train.lr_decay_every or train.lr_decay_every_epochs: the "
            "interval in which the rate falls by the factor train.lr_decay");
    require(intervals + lists <= 1,
            {"train.lr_decay_steps", "train.lr_decay_every", "train.lr_decay_epochs", "train.lr_decay_every_epochs"},
            "more than one of train.lr_decay_steps, train.lr_decay_every, train.lr_decay_epochs and "
            "train.lr_decay_every_epochs is set; keep one of them");
    require(train.warmup_steps == 0 || train.warmup_epochs == 0, {"train.warmup_steps", "train.warmup_epochs"},
            "train.warmup_steps and train.warmup_epochs are both set; remove one of them");
    require(std::ranges::adjacent_find(train.lr_decay_epochs, std::greater_equal<>{}) == train.lr_decay_epochs.end(),
            {"train.lr_decay_epochs"},
            "train.lr_decay_epochs must rise from entry to entry; sort it and remove duplicates");
    require(std::ranges::adjacent_find(train.lr_decay_steps, std::greater_equal<>{}) == train.lr_decay_steps.end(),
            {"train.lr_decay_steps"},
            "train.lr_decay_steps must rise from entry to entry; sort it and remove duplicates");
  }

  const Config& config_;
  const Sources& sources_;
};

}  // namespace

std::string Sources::where(std::initializer_list<std::string_view> keys) const {
  for (const auto key : keys) {
    if (const auto found = of_key.find(key); found != of_key.end()) return found->second;
  }
  return name;
}

void Sources::require(bool ok, std::initializer_list<std::string_view> keys, const std::string& what) const {
  if (!ok) throw ConfigError(where(keys), ": ", what);
}

std::vector<UnreadKey> unread_keys(const Config& config) {
  std::vector<UnreadKey> unread;
  const FreezeConfig& freeze = config.freeze;
  const DataConfig& data = config.data;
  if (freeze.policy != "schedule" && !freeze.schedule.empty()) {
    unread.push_back({"freeze.schedule", "freeze.policy",
                      concat("freeze.schedule is for freeze.policy=\"schedule\"; found \"", freeze.policy,
                             "\"; remove it or change the policy")});
  }
  if (data.order != "shards" && data.shuffle_window != DataConfig{}.shuffle_window) {
    unread.push_back({"data.shuffle_window", "data.order",
                      concat("data.shuffle_window=", data.shuffle_window, " is for data.order=\"shards\"; remove it")});
  }
  add_unread_keys_of_adapters(config.model, unread);
  add_unread_keys_of_updates(config.train, unread);
  add_unread_keys_of_rates(config.train, unread);
  return unread;
}

void check_rules(const Config& config, const Sources& sources) { Rules(config, sources).check(); }

}  // namespace sluice::config
