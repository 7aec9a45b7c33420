// config: what a run is asked to do, as plain typed options, read from TOML and from `--set key=value`.
// Each key is described once, in schema.cpp: type, default, unit, range, help. docs/reference/configuration.md is made
// from it.
// Read as TOML, but for strings of several lines, dates and quoted parts of dotted keys, which no key needs.
// Not here: whether the machine, the model or the data can do it (their modules check), and environment variables.
// A word such as train.optimizer stays a string: it is one of the allowed words once parsed.
// Threads: values and pure functions. Errors: ConfigError, one line that begins with FILE:LINE or the --set in
// question.
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

// Either a choice ("auto", "cpu", "cuda") that lets Sluice lay out the devices, or their names in order ("cpu:0", ...).
struct DeviceList {
  std::string choice = "auto";     // empty when `names` says which
  std::vector<std::string> names;  // repeats allowed

  bool operator==(const DeviceList&) const = default;
};

// Which stages recompute: one word for all of them ("none", "layer", "auto"), or "none" or "layer" for each.
struct RecomputeChoice {
  std::string all = "none";         // empty when `stages` says which
  std::vector<std::string> stages;  // [stage]

  [[nodiscard]] bool is_open() const { return all == "auto"; }
  bool operator==(const RecomputeChoice&) const = default;
};

struct ByteCount {
  std::int64_t bytes = 0;

  bool operator==(const ByteCount&) const = default;
};

struct DeviceConfig {
  DeviceList list;
  int threads = 0;         // per CPU device; 0 = share the cores evenly
  ByteCount memory_limit;  // of each device; 0 = none
  bool tf32 = true;        // GPUs multiply float32 in TF32
  bool cuda_graphs = false;

  bool operator==(const DeviceConfig&) const = default;
};

struct ModelConfig : ModelSpec {
  std::string weights;  // a safetensors file; empty = fresh weights

  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string name = "fashion_mnist";
  std::string path;
  int workers = 1;
  int prefetch = 4;              // batches
  std::int64_t limit = 0;        // samples; 0 = all
  std::int64_t samples = 10000;  // training samples of a synthetic data set
  int resize = 0;                // pixels of the shorter side before the middle is cut out; 0 = model.image_size
  std::string interpolation = "bilinear";
  double crop_area = 0;  // least part of a random resized crop; 0 = none
  int crop_padding = 0;  // pixels
  bool flip = false;
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;  // colour jitter
  int rand_augment = 0;                                          // operations
  int rand_augment_strength = 9;
  double erasing = 0;  // probability
  double mixup = 0;    // alpha of the Beta distribution; likewise cutmix
  double cutmix = 0;
  std::string order = "shuffled";
  std::int64_t shuffle_window = 4096;  // samples; of the order "shards"
  double validation = 0;               // part of the training set; 0 = the test set
  std::string broken = "fatal";
  std::int64_t views = 0;  // of a sample; 0 = a new one each epoch

  bool operator==(const DataConfig&) const = default;

  // Whether training sees a sample otherwise than it is: a crop, a flip, a change of colours, and so on.
  [[nodiscard]] bool has_random_views() const;
};

struct TrainConfig {
  int epochs = 1;          // ignored when steps > 0
  std::int64_t steps = 0;  // 0 = as many as `epochs` take
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
  double head_lr = 1;    // times the learning rate
  double ema_decay = 0;  // 0 = no averaged weights
  std::int64_t ema_every_steps = 1;
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  double warmup_epochs = 0;  // in the place of warmup_steps
  double lr_min = 0;
  std::vector<std::int64_t> lr_decay_steps;
  std::int64_t lr_decay_every = 0;  // steps; 0 = at lr_decay_steps
  std::vector<std::int64_t> lr_decay_epochs;
  std::int64_t lr_decay_every_epochs = 0;
  double lr_power = 1;
  double lr_decay = 0.1;
  int lr_patience = 10;  // evaluations
  double label_smoothing = 0;
  double clip_norm = 0;                      // 0 = not
  std::int64_t noise_scale_every_steps = 0;  // steps; 0 = never
  std::string precision = "fp32";
  std::string winograd = "2x2";  // nn::Winograd
  std::uint64_t seed = 1;
  bool deterministic = false;
  std::int64_t eval_every_steps = 0;  // 0 = by eval_every_epochs
  std::int64_t eval_every_epochs = 1;
  std::int64_t eval_limit = 0;  // samples; 0 = the whole test set
  std::string best_by = "top1";
  int stop_patience = 0;      // evaluations; 0 = does not stop early
  double step_timeout_s = 0;  // 0 = by the steps so far

  bool operator==(const TrainConfig&) const = default;
};

struct PipelineConfig {
  int stages = 1;
  std::optional<int> virtual_stages;  // a device; nullopt = "auto"
  std::optional<int> chunks = 1;      // nullopt = "auto"
  std::string schedule = "1f1b";
  std::string order;                          // a file; empty = by the name of the schedule
  std::optional<std::vector<int>> partition;  // layers per stage; nullopt = "auto"
  RecomputeChoice recompute;
  std::string cost_cache = "auto";  // "auto", "off" or a folder
  double planning_budget_s = 15;
  std::string batch_norm = "micro";
  std::vector<std::string> changes;  // "20: stages = 2"; read by changes.h

  bool operator==(const PipelineConfig&) const = default;
};

struct ReplicasConfig {
  int local = 1;
  std::string sync = "allreduce";
  std::string backend = "auto";
  double bucket_mb = 25;  // MiB
  std::string bucket_type = "full";
  double connect_timeout_s = 300;
  double hang_timeout_s = 60;

  [[nodiscard]] bool has_server() const { return sync == "ps"; }
  bool operator==(const ReplicasConfig&) const = default;
};

struct PsConfig {
  std::string policy = "bsp";
  std::string clock = "real";
  std::string placement = "rank0";
  std::string address;  // of the server, HOST:PORT; empty: as the launcher says
  std::string keys;     // a folder; empty: no encryption
  int workers = 2;
  std::int64_t worker_batch = 0;  // 0 = train.global_batch / workers
  int servers = 1;
  int shards = 1;
  std::optional<int> quorum;     // nullopt = "auto": as the policy has it
  std::optional<int> staleness;  // likewise; -1 = unbounded
  double grace_s = 0;
  double time_limit_s = 0;  // 0 = none
  int partitions = 0;       // 0 = pipeline.chunks
  std::string induce = "none";
  double induce_scale = 1;
  double induce_shift_s = 0;
  double induce_mean_s = 1;
  double sample_s = 0.01;
  double step_s = 0;
  double bytes_per_s = 0;  // 0 = sending takes no time
  int local_steps = 0;     // 0 = as the policy has it
  int small_workers = 0;   // of "dual_batch"; likewise extra_time and merge
  double extra_time = 1.05;
  std::string merge = "half";
  double outer_lr = 0.7;  // of "diloco"; likewise outer_momentum
  double outer_momentum = 0.9;
  std::string lr_by = "updates";
  int nesterov_delay = 0;  // updates; 0 = none
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
  std::vector<std::string> schedule;  // "3: 7"; read by freeze/schedule_text.h
  std::string unit = "block";
  bool elastic = true;
  bool replicas = true;
  std::string cache = "off";
  ByteCount cache_bytes{std::int64_t{1} << 30};
  ByteCount cache_disk_bytes;  // 0 = no disk
  std::string cache_dir;       // empty = in the system's folder for temporary files
  std::string cache_precision = "full";

  bool operator==(const FreezeConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every_steps = 0;  // 0 = never
  double every_minutes = 0;      // 0 = never
  int keep = 3;
  bool best = false;
  bool at_end = true;

  bool operator==(const CheckpointConfig&) const = default;
};

struct ProfileConfig {
  std::string level = "events";
  double peak_tflops = 0;  // of one device at the run's precision; 0 = unknown
  std::int64_t steps = 10;

  bool operator==(const ProfileConfig&) const = default;
};

struct LogConfig {
  std::int64_t every = 10;  // steps
  std::string lines = "short";
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

// Samples of a step of one process: train.global_batch, or what a worker of a parameter server takes.
[[nodiscard]] std::int64_t step_batch(const Config& config);
// Of the momentum of train.optimizer; that of diloco is the outer optimizer's.
[[nodiscard]] int nesterov_delay(const Config& config);

// Reads the file, then the `sets` ("key=value", the part after --set) in order; the last one of a key wins.
// A set's value is TOML; a bare word is a string: train.optimizer=adamw, device.list=cpu, pipeline.partition=[3,4].
[[nodiscard]] Config load(const std::filesystem::path& path, std::span<const std::string> sets = {});

// The same from text; `name` stands for the file in messages.
[[nodiscard]] Config parse(std::string_view text, std::string_view name, std::span<const std::string> sets = {});

// The text of a configuration file, as it stands.
[[nodiscard]] std::string read_config_text(const std::filesystem::path& path);

// The text with the values of `wanted` that differ from what it says. Comments, order and layout stay. parse() of the
// result gives `wanted`. name: stands for the file in messages.
[[nodiscard]] std::string text_with(std::string_view text, std::string_view name, const Config& wanted);

// Ranges and the rules between keys, for a Config that was changed or made in code.
void validate(const Config& config);

// Every key and its value as TOML, in the order of the documentation.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> values(const Config& config);

// Every key with its value, and its help, unit and range as a comment. parse(to_toml(c)) == c for every valid c.
[[nodiscard]] std::string to_toml(const Config& config);

// docs/reference/configuration.md: every key with type, default, range, unit and meaning.
[[nodiscard]] std::string to_markdown();

}  // namespace sluice::config
