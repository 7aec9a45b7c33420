#include "train/setup/model_options.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

// CPU devices beside GPUs normalise their own samples, as GPUs do.
bool runs_on_gpus(const Setup& setup) { return cpu_slots(setup.devices) < std::ssize(setup.devices); }

}  // namespace

data::Share replica_share(const Setup& setup, const Plan& plan) {
  const config::TrainConfig& train = setup.config.train;
  return {.first = std::int64_t{setup.process.rank} * plan.replicas,
          .count = plan.replicas,
          .parts = Parts(std::int64_t{setup.process.processes} * plan.replicas, plan.shares),
          .unit = train.is_reproducible_by_layout() ? train.micro_batch : 1};
}

std::int64_t samples_of(const Setup& setup, const Plan& plan, ReplicaId replica) {
  data::Share share = replica_share(setup, plan);
  share.first += index(replica);
  share.count = 1;
  return data::share_slice(plan.global_batch, share).count;
}

data::LoaderOptions train_loader_options(const Setup& setup, const Plan& plan) {
  const config::Config& config = setup.config;
  const bool is_by_layout = config.train.is_reproducible_by_layout();
  return {.batch_size = setup.global_batch,
          .share = replica_share(setup, plan),
          .threads = config.data.workers,
          .prefetch = config.data.prefetch,
          .shard_window = config.data.order == "shards" ? config.data.shuffle_window : 0,
          .groups_by_length = config.data.by_length,
          .sizes = {.image_size = setup.model.image_size,
                    .resize = config.data.resize,
                    .interpolation = config.data.interpolation == "bicubic" ? data::Interpolation::kBicubic
                                                                            : data::Interpolation::kBilinear,
                    .mean = setup.constants.mean,
                    .stddev = setup.constants.stddev},
          .augment = {.crop_area = config.data.crop_area,
                      .crop_padding = config.data.crop_padding,
                      .horizontal_flip = config.data.flip,
                      .jitter = {.brightness = config.data.brightness,
                                 .contrast = config.data.contrast,
                                 .saturation = config.data.saturation,
                                 .hue = config.data.hue},
                      .rand_augment = config.data.rand_augment,
                      .rand_augment_strength = config.data.rand_augment_strength,
                      .erasing = config.data.erasing},
          .views = config.data.views,
          .mix = {.mixup = config.data.mixup, .cutmix = config.data.cutmix},
          .seed = config.train.seed,
          .dtype = dtype_of(config),
          .skips_broken = config.data.broken == "skip",
          .epochs = epochs_of(setup),
          .pins = runs_on_gpus(setup),
          .gives_bytes = runs_on_gpus(setup),
          .keeps_samples_local = keeps_features(config) && setup.process.processes > 1 && !is_by_layout,
          .masking = setup.masking};
}

data::LoaderOptions train_loader_options(const Setup& setup) {
  return train_loader_options(setup, Plan{.replicas = setup.config.replicas.local});
}

data::LoaderOptions eval_loader_options(const Setup& setup, const Plan& plan) {
  data::LoaderOptions options = train_loader_options(setup, plan);
  options.batch_size = setup.config.train.eval_batch;
  options.groups_by_length = false;
  options.endless = false;
  options.shuffle = false;
  options.shard_window = 0;
  options.augment = {};
  options.mix = {};
  options.keeps_samples_local = false;  // the samples come in the same order each time
  return options;
}

data::LoaderOptions eval_loader_options(const Setup& setup) {
  return eval_loader_options(setup, Plan{.replicas = setup.config.replicas.local});
}

}  // namespace sluice::train
