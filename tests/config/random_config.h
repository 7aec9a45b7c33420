// random_config: configurations that are valid, drawn from the schema.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/schema.h"
#include "core/concat.h"
#include "core/text.h"

namespace sluice::config::test {

// Values that check_value() accepts, drawn from the schema alone.
class RandomValues {
 public:
  explicit RandomValues(unsigned seed) : random_(seed) {}

  Value operator()(const Key& key) {
    switch (key.field.kind) {
      case Kind::kBool: return flip();
      case Kind::kInteger: return integer(key);
      case Kind::kReal: return real(std::get<RealRange>(key.limit));
      case Kind::kString: return word(key);
      case Kind::kIntegerOrAuto: return flip() ? Value{std::string("auto")} : Value{integer(key)};
      case Kind::kIntegers: return integers(key, below(4));
      case Kind::kIntegersOrAuto: return flip() ? Value{std::string("auto")} : Value{integers(key, 1 + below(4))};
      case Kind::kStrings: return std::holds_alternative<Words>(key.limit) ? some_words(key) : changes();
      case Kind::kDevices: return devices();
      case Kind::kWordOrIntegers: return flip() ? word(key) : Value{std::vector{1 + below(9), 1 + below(1'000'000)}};
      case Kind::kWordOrWords: return word(key);  // a list needs a partition with as many stages
      case Kind::kBytes: return bytes(key);
    }
    return {};
  }

 private:
  std::int64_t below(std::int64_t limit) { return std::uniform_int_distribution<std::int64_t>(0, limit - 1)(random_); }
  bool flip() { return below(2) == 0; }

  std::int64_t integer(const Key& key) {
    const auto& range = std::get<IntegerRange>(key.limit);
    switch (below(4)) {
      case 0: return range.low;
      case 1: return range.high;
      default: return std::uniform_int_distribution<std::int64_t>(range.low, range.high)(random_);
    }
  }

  std::vector<std::int64_t> integers(const Key& key, std::int64_t count) {
    std::vector<std::int64_t> list;
    list.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) list.push_back(integer(key));
    return list;
  }

  double real(const RealRange& range) {
    const double share = std::uniform_real_distribution<double>(1e-9, 1 - 1e-9)(random_);
    if (std::isfinite(range.high)) return range.low + share * (range.high - range.low);
    return range.low + std::exp(600 * (share - 0.5));
  }

  std::string word(const Key& key) {
    if (const auto* words = std::get_if<Words>(&key.limit))
      return words->at(static_cast<std::size_t>(below(std::ssize(*words))));
    const std::vector<std::string> pieces{"a", "\"", "\\", "\n",       "\t", "\x01", "\x7f",
                                          "#", " ",  "=",  "\xc3\xa9", "'",  "]"};
    std::string text;
    for (std::int64_t i = below(6); i > 0; --i) text += pieces[static_cast<std::size_t>(below(std::ssize(pieces)))];
    return text;
  }

  Value some_words(const Key& key) {
    std::vector<std::string> some;
    for (const std::string& word : std::get<Words>(key.limit)) {
      if (flip()) some.push_back(word);
    }
    return some;
  }

  // As they are printed: with the largest unit that gives an integer, else as a number.
  Value bytes(const Key& key) {
    const std::int64_t count = flip() ? integer(key) : below(1000) << 20;
    return count == 0 || count % 1024 != 0 ? Value{count} : Value{exact_bytes(count)};
  }

  // What each entry of pipeline.changes may say of any configuration.
  Value changes() {
    std::vector<std::string> entries;
    for (std::int64_t i = below(3); i > 0; --i)
      entries.push_back(concat(10 * (entries.size() + 1), flip() ? ": recompute=layer" : ": recompute = \"none\""));
    return entries;
  }

  Value devices() {
    if (flip()) return std::string(flip() ? "cpu" : "cuda");
    std::vector<std::string> names;
    for (std::int64_t i = 1 + below(4); i > 0; --i) names.push_back(concat(flip() ? "cpu:" : "cuda:", below(1024)));
    return names;
  }

  std::mt19937 random_;
};

inline void repair_freezing(Config& config) {
  config.freeze.schedule.clear();
  if (config.freeze.policy == "schedule") config.freeze.schedule = {"3: 7"};
  if (config.freeze.policy.starts_with("gradient")) config.train.deterministic = config.replicas.elastic = false;
  if (config.freeze.policy != "none") config.pipeline.order.clear(), config.pipeline.changes.clear();
}

// A list needs a partition with as many stages.
inline void list_recomputation(Config& config) {
  if (!config.pipeline.partition || config.freeze.policy != "none") return;
  config.pipeline.recompute = {.all = "", .stages = {}};
  for (const int layers : *config.pipeline.partition)
    config.pipeline.recompute.stages.emplace_back(layers % 2 == 0 ? "layer" : "none");
}

inline void repair_views(DataConfig& data) {
  if (data.order != "shards") data.shuffle_window = DataConfig{}.shuffle_window;
  if (data.crop_area > 0) data.crop_padding = 0;
  if (!data.has_random_views()) data.views = 0;
}

inline void repair_cache(Config& config) {
  auto& freeze = config.freeze;
  const auto& data = config.data;
  const bool augments_anew = data.views == 0 && data.has_random_views();
  const bool has_same_samples = data.broken == "fatal" && data.mixup + data.cutmix == 0;
  if (config.train.deterministic || augments_anew || !has_same_samples) freeze.cache = "off";
  if (freeze.cache == "disk" && freeze.cache_disk_bytes.bytes == 0) freeze.cache = "memory";
  if (freeze.cache == "memory") freeze.cache_disk_bytes.bytes = 0;
  if (freeze.cache == "memory" && freeze.cache_bytes.bytes == 0) freeze.cache_bytes.bytes = 1;
}

// What is for policies whose workers make steps of their own.
inline void repair_local_training(PsConfig& ps) {
  const PsConfig defaults;
  const bool is_dual = ps.policy == "dual_batch", is_diloco = ps.policy == "diloco";
  if (is_dual) {
    ps.small_workers = std::min(ps.small_workers, ps.workers);
  } else {
    ps.small_workers = defaults.small_workers;
    ps.extra_time = defaults.extra_time;
    ps.merge = defaults.merge;
  }
  if (!is_diloco) ps.outer_lr = defaults.outer_lr, ps.outer_momentum = defaults.outer_momentum;
  if (!is_diloco && ps.policy != "local_sgd") ps.local_steps = 0;
  if (is_dual || is_diloco || ps.policy == "local_sgd") ps.time_limit_s = 0, ps.lr_by = defaults.lr_by;
}

inline void repair_delay(PsConfig& ps, TrainConfig& train) {
  if (ps.nesterov_delay == 0) return;
  if (ps.policy == "diloco") {
    ps.quorum = 1;
    ps.outer_momentum = 0.5;
  } else if (ps.policy == "asp" || ps.policy == "ssp") {
    train.optimizer = "momentum";
    train.momentum = 0.5;
    train.nesterov = true;
  } else {
    ps.nesterov_delay = 0;
  }
}

inline void repair_compression(PsConfig& ps) {
  const PsConfig defaults;
  if (ps.policy == "dual_batch" || ps.policy == "local_sgd" || ps.clock != "virtual")
    ps.push_compression = ps.pull_compression = "none";
  if (ps.push_compression != "topk" && ps.pull_compression != "topk") ps.topk_ratio = defaults.topk_ratio;
}

inline void repair_parameter_server(Config& config) {
  if (config.replicas.sync != "ps") {
    config.ps = {};
    return;
  }
  config.train.steps = std::max<std::int64_t>(config.train.steps, 1);
  config.pipeline.batch_norm = "micro";
  config.replicas.local = 1;
  config.replicas.bucket_type = "full";
  config.freeze.policy = "none";
  config.pipeline.changes.clear();
  config.ps.workers = 1;
  config.ps.worker_batch = config.ps.partitions = 0;
  const PsConfig defaults;
  repair_local_training(config.ps);
  repair_delay(config.ps, config.train);
  repair_compression(config.ps);
  if (config.ps.clock == "virtual") {
    config.ps.log = defaults.log;
    config.ps.placement = defaults.placement;
    config.ps.address = config.ps.keys = "";
    config.ps.servers = defaults.servers;
  } else {
    config.ps.sample_s = defaults.sample_s;
    config.ps.step_s = config.ps.bytes_per_s = 0;
  }
  if (config.ps.policy == "amb" && config.ps.time_limit_s == 0) config.ps.time_limit_s = 1;
  if (config.ps.time_limit_s == 0) return;
  config.pipeline.order.clear();
  config.pipeline.schedule = "gpipe";
}

inline void repair_adapters(Config& config) {
  ModelConfig& model = config.model;
  const ModelConfig defaults;
  if (config.replicas.sync == "ps") model.lora_rank = 0, config.data.by_length = config.replicas.elastic = false;
  if (model.weights.empty()) model.lora_weights.clear();
  if (model.lora_rank > 0) return;
  model.lora_alpha = defaults.lora_alpha;
  model.lora_dropout = defaults.lora_dropout;
  model.lora_targets.clear();
  model.lora_weights.clear();
}

inline void repair_decay(TrainConfig& train) {
  std::ranges::sort(train.lr_decay_steps);
  const auto repeats = std::ranges::unique(train.lr_decay_steps);
  train.lr_decay_steps.erase(repeats.begin(), repeats.end());
  std::ranges::sort(train.lr_decay_epochs);
  const auto same = std::ranges::unique(train.lr_decay_epochs);
  train.lr_decay_epochs.erase(same.begin(), same.end());
  if (train.warmup_epochs > 0) train.warmup_steps = 0;
  if (train.lr_schedule == "exponential") train.lr_decay_steps.clear(), train.lr_decay_epochs.clear();
  if (train.lr_schedule == "exponential" && train.lr_decay_every_epochs == 0) train.lr_decay_every = 3;
  if (train.lr_decay_every > 0) train.lr_decay_every_epochs = 0;
  if (train.lr_decay_every + train.lr_decay_every_epochs > 0)
    train.lr_decay_steps.clear(), train.lr_decay_epochs.clear();
  if (!train.lr_decay_steps.empty()) train.lr_decay_epochs.clear();
  const bool has_none = train.lr_decay_every + train.lr_decay_every_epochs == 0 && train.lr_decay_steps.empty() &&
                        train.lr_decay_epochs.empty();
  if (train.lr_schedule == "step" && has_none) train.lr_decay_steps = {1};
}

// Keys that the schedule does not read.
inline void repair_keys_of_schedule(TrainConfig& train) {
  if (train.lr_schedule != "step") train.lr_decay_steps.clear(), train.lr_decay_epochs.clear();
  if (train.lr_schedule != "step" && train.lr_schedule != "exponential")
    train.lr_decay_every = train.lr_decay_every_epochs = 0;
  if (train.lr_schedule != "polynomial") train.lr_power = 1;
  const bool falls_to_end = train.lr_schedule == "cosine" || train.lr_schedule == "linear" ||
                            train.lr_schedule == "polynomial" || train.lr_schedule == "plateau";
  if (!falls_to_end) train.lr_min = 0;
}

inline void repair_evaluation(Config& config) {
  auto& train = config.train;
  if (config.replicas.sync == "ps") {
    train.stop_patience = 0;
    if (train.lr_schedule == "plateau") train.lr_schedule = "constant";
    if (train.optimizer == "lamb") train.optimizer = "sgd";
    train.no_decay.clear();
    train.head_lr = 1;
    train.ema_decay = 0;
    train.noise_scale_every_steps = 0;
    config.data.order = "shuffled";
    config.data.mixup = config.data.cutmix = 0;
    config.data.shuffle_window = DataConfig{}.shuffle_window;
  }
  if (config.freeze.policy != "none") train.ema_decay = 0;
  if (train.lr_schedule != "plateau") train.lr_patience = TrainConfig{}.lr_patience;
  if (train.eval_every_steps > 0) train.eval_every_epochs = 1;
  if (train.optimizer != "adam" && train.optimizer != "adamw") train.amsgrad = false;
  if (train.ema_decay == 0) train.ema_every_steps = 1;
}

inline void repair_graphs(Config& config) {
  if (config.pipeline.batch_norm != "micro" || config.replicas.sync == "ps" || config.profile.level == "torch")
    config.device.cuda_graphs = false;
}

inline void repair_reproducible(Config& config) {
  auto& train = config.train;
  const bool knows_layout = config.replicas.has_server() || config.pipeline.batch_norm == "sync" ||
                            config.device.cuda_graphs || train.noise_scale_every_steps > 0 ||
                            config.freeze.policy.starts_with("gradient") || config.freeze.cache_precision != "full";
  if (knows_layout || train.micro_batch == 0 || config.device.threads == 0) train.reproducible = "off";
  if (train.reproducible == "off" || config.log.digest_every == 0) config.log.digest_layers = false;
}

// Changes what the rules between keys forbid, and nothing else.
inline void repair_shares(Config& config) {
  const FreezeConfig& freeze = config.freeze;
  const bool needs_equal = config.replicas.sync != "allreduce" || config.pipeline.batch_norm == "sync" ||
                           !config.pipeline.order.empty() || config.device.cuda_graphs || config.replicas.elastic ||
                           config.train.deterministic || config.profile.level == "off" ||
                           (freeze.policy != "none" && freeze.elastic && freeze.replicas);
  if (needs_equal) config.replicas.shares = {}, config.pipeline.replan = "off";
}

inline void repair_replan(Config& config) {
  if (!config.pipeline.changes.empty() || config.freeze.policy != "none") config.pipeline.replan = "off";
}

inline Config repaired(Config config) {
  auto& train = config.train;
  auto& pipeline = config.pipeline;
  repair_parameter_server(config);
  repair_adapters(config);
  if (!config.model.file.empty()) config.model.name = "pt2";
  repair_freezing(config);
  repair_views(config.data);
  repair_cache(config);
  if (!pipeline.order.empty()) pipeline.schedule = PipelineConfig{}.schedule;
  if (pipeline.partition) pipeline.stages = static_cast<int>(pipeline.partition->size());
  if (pipeline.recompute.all == "layer") list_recomputation(config);
  repair_graphs(config);
  if (!config.device.list.names.empty()) {
    config.replicas.local = 1;
    config.device.list.names.resize(static_cast<std::size_t>(pipeline.stages), "cpu:0");
  }
  if (config.replicas.sync == "none") config.replicas.local = 1;
  train.global_batch = std::max(train.global_batch, std::int64_t{pipeline.chunks.value_or(1)} * config.replicas.local);
  train.micro_batch =
      pipeline.chunks.value_or(1) > 1 ? 0 : std::min(train.micro_batch, train.global_batch / config.replicas.local);
  train.epochs = std::max(train.epochs, 1);
  if (train.steps > 0) train.warmup_steps = std::min(train.warmup_steps, train.steps);
  train.nesterov = train.nesterov && train.optimizer == "momentum" && train.momentum > 0;
  train.lr_min = std::min(train.lr_min, train.lr);
  repair_decay(train);
  repair_evaluation(config);
  repair_keys_of_schedule(train);
  repair_reproducible(config);
  repair_shares(config);
  repair_replan(config);
  return config;
}

}  // namespace sluice::config::test
