// config: the options of a run as typed values, from TOML and `--set key=value`. schema.cpp describes each key.
// Multi-line strings, dates and quoted parts of dotted keys are rejected. Errors: ConfigError, one line that begins
// with FILE:LINE or with the --set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model_spec.h"

namespace sluice::config {

struct DeviceList {
  std::string choice = "auto";  // empty if `names` is set
  std::vector<std::string> names;

  bool operator==(const DeviceList&) const = default;
};

// Which stages recompute: one word for all ("none", "layer", "auto"), or "none" or "layer" for each stage.
struct RecomputeChoice {
  std::string all = "none";  // empty if `stages` is set
  std::vector<std::string> stages;

  [[nodiscard]] bool is_open() const { return all == "auto"; }
  bool operator==(const RecomputeChoice&) const = default;
};

struct ByteCount {
  std::int64_t bytes = 0;

  bool operator==(const ByteCount&) const = default;
};

struct DeviceConfig {
  DeviceList list;
  int threads = 0;         // per CPU device; 0 = even share of the cores
  ByteCount memory_limit;  // per device; 0 = no limit
  bool tf32 = true;        // GPUs multiply float32 in TF32
  bool cuda_graphs = false;

  bool operator==(const DeviceConfig&) const = default;
};

struct ModelConfig : ModelSpec {
  std::string weights;       // a safetensors file; empty = fresh weights
  std::string lora_weights;  // a folder; empty = fresh adapters

  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string name = "fashion_mnist";
  std::string path;
  int workers = 1;
  int prefetch = 4;
  std::int64_t limit = 0;
  std::int64_t samples = 10000;
  int resize = 0;  // shorter side in pixels, before the centre crop; 0 = model.image_size
  std::string interpolation = "bilinear";
  double crop_area = 0;  // smallest area of a random resized crop; 0 = no crop
  int crop_padding = 0;
  bool flip = false;
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  int rand_augment = 0;
  int rand_augment_strength = 9;
  double erasing = 0;
  double mixup = 0;  // mixup, cutmix: alpha of the Beta distribution
  double cutmix = 0;
  std::string order = "shuffled";
  std::int64_t shuffle_window = 4096;  // samples, for order = "shards"
  double validation = 0;               // fraction of the training set; 0 = use the test set
  std::string broken = "fatal";
  std::int64_t views = 0;  // views per sample; 0 = a new view each epoch
  std::string tokenizer;   // from here on: for text
  std::string text_column = "text";
  std::string pair_column;
  std::string label_column = "label";
  int max_length = 0;  // tokens; 0 = positions of the model
  int stride = 128;
  std::string pad = "longest";
  bool by_length = false;
  std::string pack = "off";
  std::string documents = "file";
  double mask_share = 0.15;

  bool operator==(const DataConfig&) const = default;

  [[nodiscard]] bool has_random_views() const;
};

struct TrainConfig {
  int epochs = 1;
  std::int64_t steps = 0;
  std::int64_t global_batch = 64;
  std::int64_t micro_batch = 0;  // samples; 0 = from pipeline.chunks
  std::int64_t eval_batch = 256;
  std::string optimizer = "momentum";
  double lr = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double rms_alpha = 0.99;
  bool amsgrad = false;
  std::vector<std::string> no_decay;
  double head_lr = 1;  // factor on the learning rate
  double ema_decay = 0;
  std::int64_t ema_every_steps = 1;
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  double warmup_epochs = 0;  // replaces warmup_steps
  double lr_min = 0;
  std::vector<std::int64_t> lr_decay_steps;
  std::int64_t lr_decay_every = 0;
  std::vector<std::int64_t> lr_decay_epochs;
  std::int64_t lr_decay_every_epochs = 0;
  double lr_power = 1;
  double lr_decay = 0.1;
  int lr_patience = 10;
  double label_smoothing = 0;
  double clip_norm = 0;
  std::int64_t noise_scale_every_steps = 0;
  std::string precision = "fp32";
  std::string winograd = "2x2";  // nn::Winograd
  std::uint64_t seed = 1;
  bool deterministic = false;
  std::string reproducible = "off";
  std::int64_t eval_every_steps = 0;
  std::int64_t eval_every_epochs = 1;
  std::int64_t eval_limit = 0;
  std::string best_by = "top1";
  int stop_patience = 0;
  double step_timeout_s = 0;  // 0 = derived from earlier steps

  // Results do not depend on stages, schedule, replicas and processes.
  [[nodiscard]] bool is_reproducible_by_layout() const { return reproducible == "layout"; }

  bool operator==(const TrainConfig&) const = default;
};

struct PipelineConfig {
  int stages = 1;
  std::optional<int> virtual_stages;  // per device; nullopt = "auto"
  std::optional<int> chunks = 1;
  std::string schedule = "1f1b";
  std::string order;                          // a schedule file; empty = use `schedule`
  std::optional<std::vector<int>> partition;  // layers per stage; nullopt = "auto"
  RecomputeChoice recompute;
  std::string cost_cache = "auto";  // "auto", "off" or a folder
  double planning_budget_s = 15;
  std::string batch_norm = "micro";
  std::vector<std::string> changes;  // "20: stages = 2"; parsed by changes.h
  std::string replan = "off";

  [[nodiscard]] bool replans() const { return replan == "auto"; }
  bool operator==(const PipelineConfig&) const = default;
};

// replicas.shares: a word, or a number for each replica.
struct ShareChoice {
  std::string rule = "equal";
  std::vector<int> list;

  [[nodiscard]] bool is_equal() const { return rule == "equal"; }
  [[nodiscard]] bool is_measured() const { return rule == "measured"; }
  bool operator==(const ShareChoice&) const = default;
};

struct ReplicasConfig {
  int local = 1;
  ShareChoice shares;
  std::string sync = "allreduce";
  std::string backend = "auto";
  double bucket_mb = 25;
  std::string bucket_type = "full";
  double connect_timeout_s = 300;
  double hang_timeout_s = 60;
  bool elastic = false;
  int min = 1;

  [[nodiscard]] bool has_server() const { return sync == "ps"; }
  bool operator==(const ReplicasConfig&) const = default;
};

struct PsConfig {
  std::string policy = "bsp";
  std::string clock = "real";
  std::string placement = "rank0";
  std::string address;  // HOST:PORT of the server; empty = from the launcher
  std::string keys;     // a folder; empty = no encryption
  int workers = 2;
  std::int64_t worker_batch = 0;
  int servers = 1;
  int shards = 1;
  std::optional<int> quorum;     // nullopt = "auto": from the policy
  std::optional<int> staleness;  // nullopt = "auto": from the policy; -1 = unbounded
  double grace_s = 0;
  double time_limit_s = 0;  // 0 = no limit
  int partitions = 0;
  std::string induce = "none";
  double induce_scale = 1;
  double induce_shift_s = 0;
  double induce_mean_s = 1;
  double sample_s = 0.01;
  double step_s = 0;
  double bytes_per_s = 0;
  int local_steps = 0;    // 0 = from the policy
  int small_workers = 0;  // small_workers, extra_time, merge: for the policy "dual_batch"
  double extra_time = 1.05;
  std::string merge = "half";
  double outer_lr = 0.7;  // outer_lr, outer_momentum: for the policy "diloco"
  double outer_momentum = 0.9;
  std::string lr_by = "updates";
  int nesterov_delay = 0;  // updates; 0 = off
  std::string log = "off";
  std::string push_compression = "none";
  std::string pull_compression = "none";
  double topk_ratio = 0.01;

  bool operator==(const PsConfig&) const = default;
};

struct FreezeConfig {
  std::string policy = "none";
  double alpha = 1.0 / 3;
  double percentile = 50;
  std::vector<std::string> schedule;  // "3: 7"; parsed by freeze/schedule_text.h
  std::string unit = "block";
  bool elastic = true;
  bool replicas = true;
  std::string cache = "off";
  ByteCount cache_bytes{std::int64_t{1} << 30};
  ByteCount cache_disk_bytes;
  std::string cache_dir;
  std::string cache_precision = "full";

  bool operator==(const FreezeConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every_steps = 0;
  double every_minutes = 0;
  int keep = 3;
  bool best = false;
  bool at_end = true;

  bool operator==(const CheckpointConfig&) const = default;
};

struct ProfileConfig {
  std::string level = "events";
  double peak_tflops = 0;  // per device at the run's precision; 0 = unknown
  std::int64_t steps = 10;

  bool operator==(const ProfileConfig&) const = default;
};

struct LogConfig {
  std::int64_t every = 10;
  std::string lines = "short";
  std::int64_t digest_every = 1000;
  bool digest_layers = false;
  bool tensorboard = true;
  bool csv = false;

  bool operator==(const LogConfig&) const = default;
};

struct Config {
  DeviceConfig device;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  PipelineConfig pipeline;
  ReplicasConfig replicas;
  PsConfig ps;
  FreezeConfig freeze;
  CheckpointConfig checkpoint;
  ProfileConfig profile;
  LogConfig log;

  bool operator==(const Config&) const = default;
};

// Samples per step and process. A parameter-server worker uses ps.worker_batch instead of train.global_batch.
[[nodiscard]] std::int64_t step_batch(const Config& config);
// ps.nesterov_delay for the momentum of train.optimizer; 0 for diloco, which applies the key to its outer optimizer.
[[nodiscard]] int nesterov_delay(const Config& config);

// Reads the file, then applies `sets` ("key=value", the part after --set) in order; the last value of a key wins. A
// value is TOML or a bare word: train.optimizer=adamw, device.list=cpu, pipeline.partition=[3,4].
[[nodiscard]] Config load(const std::filesystem::path& path, std::span<const std::string> sets = {});

// Like load(), from text; `name` replaces the file name in messages.
[[nodiscard]] Config parse(std::string_view text, std::string_view name, std::span<const std::string> sets = {});

[[nodiscard]] std::string read_config_text(const std::filesystem::path& path);

// Returns `text` with the values of `wanted` that differ from it; comments, order and layout stay. parse() of the
// result gives `wanted`. `name` replaces the file name in messages.
[[nodiscard]] std::string text_with(std::string_view text, std::string_view name, const Config& wanted);

void validate(const Config& config);

[[nodiscard]] std::vector<std::pair<std::string, std::string>> values(const Config& config);

// Every key with its value and, as a comment, its help, unit and range. parse(to_toml(c)) == c for every valid c.
[[nodiscard]] std::string to_toml(const Config& config);
// Like to_toml(), without advanced keys that have their defaults; the last line counts them. It parses to the same.
[[nodiscard]] std::string to_short_toml(const Config& config);

// Text of docs/reference/configuration.md.
[[nodiscard]] std::string to_markdown();

}  // namespace sluice::config
