#include "config/schema.h"

#include <algorithm>

#include "config/keys.h"

namespace sluice::config {
namespace {

using internal::above;
using internal::any;
using internal::at_least;
using internal::between;
using internal::field;
using internal::fraction;
using internal::Keys;
using internal::real_at_least;
using internal::real_between;
using internal::words;

constexpr std::int64_t kLargestMemory = std::int64_t{1} << 50;

template <auto kMember>
Field device() {
  return field<&Config::device, kMember>();
}
template <auto kMember>
Field model() {
  return field<&Config::model, kMember>();
}
template <auto kMember>
Field data() {
  return field<&Config::data, kMember>();
}
template <auto kMember>
Field pipeline() {
  return field<&Config::pipeline, kMember>();
}
template <auto kMember>
Field replicas() {
  return field<&Config::replicas, kMember>();
}
template <auto kMember>
Field freeze() {
  return field<&Config::freeze, kMember>();
}
template <auto kMember>
Field checkpoint() {
  return field<&Config::checkpoint, kMember>();
}

Keys device_keys() {
  using C = DeviceConfig;
  return {
      {"device.list", device<&C::list>(), any(), "",
       "auto = every GPU, else the CPU; cpu = virtual devices; of names the first are taken, as many as a run needs, "
       "and they may repeat",
       kHow | kPerProcess},
      {"device.threads", device<&C::threads>(), between(0, 1024), "threads",
       "threads of a CPU device, all together at most 64 a core; 0 = share the cores evenly", kHow | kPerProcess},
      {"device.memory_limit", device<&C::memory_limit>(), between(0, kLargestMemory), "bytes",
       "what the tensors of each device may take, also of a CPU device, as a number or such as \"512MiB\"; a step that "
       "needs more ends the run with exit code 4; 0 = no limit",
       kHow | kPerProcess},
      {"device.tf32", device<&C::tf32>(), any(), "",
       "whether GPUs round the factors of fp32 products and convolutions to TF32's 10 bits, which their tensor cores "
       "multiply about eight times as fast; sums stay fp32. An error near 1e-3 of a product is below that of bf16, in "
       "which such models train as well; `sluice step` and `eval --logits`, "
       "whose numbers are compared, never do"},
      {"device.cuda_graphs", device<&C::cuda_graphs>(), any(), "",
       "whether GPUs run training steps as CUDA graphs: what an action starts there is recorded in the second of two "
       "steps with batches of one shape, and started as a whole in those that follow, so that short kernels do not "
       "wait for the processor; the same numbers. Steps of another shape, such as a short last batch, run without",
       kHow},
  };
}

Keys model_keys() {
  using C = ModelConfig;
  return {
      {"model.name", model<&C::name>(), any(), "", "the model; `sluice models` lists them"},
      {"model.size", model<&C::size>(), any(), "", "size of the model, in families that have several"},
      {"model.classes", model<&C::classes>(), between(0, 10'000'000), "",
       "outputs of the classifier; 0 = from the data"},
      {"model.image_size", model<&C::image_size>(), between(0, 65'536), "pixels",
       "height and width of the input, to which images of other sizes are resized; 0 = from the data, 224 of pictures "
       "in files"},
      {"model.patch_size", model<&C::patch_size>(), between(1, 65'536), "pixels",
       "height and width of a patch of a vision transformer"},
      {"model.stem", model<&C::stem>(), words({"cifar", "imagenet"}), "",
       "first convolution of resnet18 and deeper ones: cifar = 3x3, keeps the size; imagenet = 7x7 and a pooling, "
       "which quarter it"},
      {"model.channels", model<&C::channels>(), between(0, 65'536), "", "channels of the input; 0 = from the data"},
      {"model.vocabulary", model<&C::vocabulary>(), between(0, 10'000'000), "tokens",
       "different tokens that a language model knows; 0 = those of model.size"},
      {"model.context", model<&C::context>(), between(0, 1'000'000), "tokens",
       "positions of a language model, and the length of the sequences that text is cut into; 0 = that of model.size"},
      {"model.dropout", model<&C::dropout>(), fraction(), "",
       "probability that an activation is dropped; in VGG behind the first two linear maps, where torchvision has "
       "0.5"},
      {"model.stochastic_depth", model<&C::stochastic_depth>(), fraction(), "",
       "probability that the last block of convnext leaves a sample as it is, falling evenly to 0 in the first block; "
       "torchvision has 0.1 (tiny), 0.4 (small), 0.5 (base, large)"},
      {"model.weights", model<&C::weights>(), any(), "",
       "weights to start from, ours or another library's: a safetensors file, a folder or index of several, or a run "
       "directory, of which the newest checkpoint is taken; the head may be for another number of classes; empty = "
       "fresh weights",
       kPerProcess},
  };
}

Keys data_keys() {
  using C = DataConfig;
  return {
      {"data.name", data<&C::name>(), any(), "", "the data set; `sluice datasets` lists them", kSource},
      {"data.path", data<&C::path>(), any(), "",
       "folder of the data set, of text the file; empty = where its package puts it", kSource | kPerProcess},
      {"data.workers", data<&C::workers>(), between(0, 256), "threads",
       "threads that prepare batches; 0 = the training thread does", kHow | kPerProcess},
      {"data.prefetch", data<&C::prefetch>(), between(1, 1024), "batches", "batches prepared ahead",
       kHow | kPerProcess},
      {"data.limit", data<&C::limit>(), at_least(0), "samples",
       "use only so many samples of the training set and of the test set: the first, of image_folder evenly spaced "
       "ones; 0 "
       "= all",
       kSource},
      {"data.samples", data<&C::samples>(), at_least(1), "samples",
       "training samples of a synthetic data set; a fifth of it more for testing", kSource},
      {"data.resize", data<&C::resize>(), between(0, 65'536), "pixels",
       "images are resized so that their shorter side has so many and the middle is cut out, model.image_size square, "
       "in training without data.crop_area and in evaluation; 0 = model.image_size"},
      {"data.interpolation", data<&C::interpolation>(), words({"bilinear", "bicubic"}), "",
       "how images are resized, always with antialias"},
      {"data.crop_area", data<&C::crop_area>(), real_between(0, 1), "part",
       "random resized crops in training: the least part of an image's area that one takes, such as 0.08; 0 = none"},
      {"data.crop_padding", data<&C::crop_padding>(), between(0, 64), "pixels",
       "random crops after padding by this much; 0 = none"},
      {"data.flip", data<&C::flip>(), any(), "", "mirror half of the training images"},
      {"data.brightness", data<&C::brightness>(), real_between(0, 10), "",
       "colour jitter in training, torchvision's ColorJitter: brightness times a factor up to so much off 1"},
      {"data.contrast", data<&C::contrast>(), real_between(0, 10), "", "likewise, the contrast"},
      {"data.saturation", data<&C::saturation>(), real_between(0, 10), "", "likewise, the saturation"},
      {"data.hue", data<&C::hue>(), real_between(0, 0.5), "",
       "likewise, a turn of the hue by up to this part of a circle"},
      {"data.rand_augment", data<&C::rand_augment>(), between(0, 16), "operations",
       "RandAugment in training: operations an image, drawn out of torchvision's 14; 0 = none"},
      {"data.rand_augment_strength", data<&C::rand_augment_strength>(), between(0, 30), "",
       "torchvision's magnitude of these operations"},
      {"data.erasing", data<&C::erasing>(), real_between(0, 1), "",
       "torchvision's RandomErasing in training: probability that a part of the image is erased"},
      {"data.mixup", data<&C::mixup>(), real_at_least(0), "",
       "mixup in training: a batch is blended with itself, moved on by one sample, by a share drawn from Beta(a, a) "
       "with this a, and so are its targets; 0 = none"},
      {"data.cutmix", data<&C::cutmix>(), real_at_least(0), "",
       "CutMix in training: likewise, but a rectangle is taken from the other sample; with data.mixup each batch has "
       "one of the two, drawn evenly; 0 = none"},
      {"data.order", data<&C::order>(), words({"shuffled", "shards"}), "",
       "order of the samples of an epoch: shuffled = any; shards = the tar files in a shuffled order, each from its "
       "beginning to its end, so that a disk reads on"},
      {"data.shuffle_window", data<&C::shuffle_window>(), at_least(1), "samples",
       "samples in a row that are shuffled among each other, of the order shards"},
      {"data.validation", data<&C::validation>(), real_between(0, 0.9), "part",
       "this part of the training set is held out and evaluated in the place of the test set; 0 = none"},
      {"data.broken", data<&C::broken>(), words({"fatal", "skip"}), "",
       "what a picture does that cannot be read: end the run, or be named and counted while the next sample takes its "
       "place",
       kHow},
      {"data.views", data<&C::views>(), between(0, 1'000'000), "views",
       "how many different crops and flips a sample has, which the epochs take in turn; 0 = a new one in each epoch"},
  };
}

Keys pipeline_keys() {
  using C = PipelineConfig;
  return {
      {"pipeline.stages", pipeline<&C::stages>(), between(1, 1024), "devices",
       "devices that a replica spans, one stage each, or pipeline.virtual of them", kHow | kPerWorker | kTuned},
      {"pipeline.virtual", pipeline<&C::virtual_stages>(), between(1, 1024), "stages",
       "stages a device; auto = 2 for interleaved, looped-bfs, zb-v and dualpipe-v, else 1", kHow | kPerWorker},
      {"pipeline.chunks", pipeline<&C::chunks>(), between(1, 65'536), "micro-batches",
       "micro-batches that a replica runs per step", kHow | kPerWorker | kTuned},
      {"pipeline.schedule", pipeline<&C::schedule>(),
       words({"gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"}), "",
       "order of the micro-batches on the stages; `sluice schedule` draws and costs them", kHow | kPerWorker | kTuned},
      {"pipeline.order", pipeline<&C::order>(), any(), "",
       "file with an order of your own, as `sluice schedule NAME --text FILE` writes it, in place of "
       "pipeline.schedule; pipeline.stages, virtual and chunks follow from it where they are left at their defaults; "
       "empty = none",
       kHow | kPerWorker},
      {"pipeline.partition", pipeline<&C::partition>(), at_least(1), "layers",
       "layers per stage, first stage first; auto = balance the measured costs", kHow | kPerWorker | kTuned},
      {"pipeline.recompute", pipeline<&C::recompute>(), words({"none", "layer", "auto"}), "",
       "layer = backward runs each layer forward again, so that only the layers' inputs are kept until then; auto = in "
       "the stages that would not fit device.memory_limit otherwise; a list has \"none\" or \"layer\" for each stage "
       "of "
       "pipeline.partition",
       kHow | kPerWorker | kTuned},
      {"pipeline.cost_cache", pipeline<&C::cost_cache>(), any(), "",
       "folder where measured layer costs are kept for the next run; auto = sluice/costs in the user's cache folder "
       "(XDG_CACHE_HOME), off = measure every time",
       kHow | kPerProcess},
      {"pipeline.planning_budget_s", pipeline<&C::planning_budget_s>(), real_between(0, 1e6), "s",
       "how long measuring may take before the first step: a third for the layers, the rest for steps with different "
       "numbers of chunks; what no plan can do without is measured all the same, and the log says what was left out",
       kHow | kPerWorker},
      {"pipeline.batch_norm", pipeline<&C::batch_norm>(), words({"micro", "deferred", "sync"}), "",
       "micro, deferred: a micro-batch is normalised by itself, and running statistics take in each of them, or the "
       "whole mini-batch once; sync: a micro-batch is normalised by its statistics over all replicas"},
      {"pipeline.changes", pipeline<&C::changes>(), any(), "",
       "plans that the run changes to on its way: \"20: stages = 2, chunks = 4\" does so after step 20. A change sets "
       "stages, virtual, chunks, schedule, partition, recompute or replicas (replicas.local); what it leaves out stays "
       "as it was (chunks = auto is not timed then: one a device, or as many as the schedule needs)",
       kHow | kPerWorker},
  };
}

Keys freeze_keys() {
  using C = FreezeConfig;
  return {
      {"freeze.policy", freeze<&C::policy>(), words({"none", "linear", "gradient", "gradient-change", "schedule"}), "",
       "which of the model's first blocks are no longer trained from an epoch on; linear: of L blocks "
       "ceil(L (1 - (1 - freeze.alpha)^epoch)), gradient: up to the one whose gradient, added up over an epoch, is "
       "smallest, but no more than linear; gradient-change: those before the first whose added-up gradient still "
       "changes much from epoch to epoch; schedule: as freeze.schedule says; the head is always trained"},
      {"freeze.alpha", freeze<&C::alpha>(), RealRange{.low = 0, .high = 1, .low_open = true}, "",
       "share of the blocks still trained that linear freezes in each epoch, and gradient at most"},
      {"freeze.percentile", freeze<&C::percentile>(), real_between(0, 100), "%",
       "for gradient-change: a block that changes as much as this percentile of all blocks still trained stays so"},
      {"freeze.schedule", freeze<&C::schedule>(), any(), "",
       "for freeze.policy = \"schedule\": \"3: 7\" freezes the first 7 blocks from epoch 3 on; epochs count from 0, as "
       "in metrics.jsonl, while the log counts from 1 and calls it epoch 4; fewer than before thaw some"},
      {"freeze.unit", freeze<&C::unit>(), words({"block", "half"}), "",
       "what policies count; half: attention and MLP of a transformer's block each for itself"},
      {"freeze.elastic", freeze<&C::elastic>(), any(), "",
       "whether the pipeline may go on on fewer devices once layers are frozen, where a step is predicted to be "
       "shorter and the change to be won back within the epoch; with train.deterministic it never does",
       kHow},
      {"freeze.replicas", freeze<&C::replicas>(), any(), "",
       "whether devices that the pipeline gives up become replicas", kHow},
      {"freeze.cache", freeze<&C::cache>(), words({"off", "memory", "disk", "auto"}), "",
       "where what frozen layers make of a sample is kept, so that they run once for it and not in every epoch: "
       "memory; disk; auto = in memory and then on disk, if rows in memory are measured to take less time than the "
       "layers. Crops and flips need data.views; not with train.deterministic",
       kHow},
      {"freeze.cache_bytes", freeze<&C::cache_bytes>(), between(0, kLargestMemory), "bytes",
       "most memory of each process that the cache takes, as a number or such as \"512MiB\"", kHow | kPerProcess},
      {"freeze.cache_disk_bytes", freeze<&C::cache_disk_bytes>(), between(0, kLargestMemory), "bytes",
       "most disk space that the cache of each process takes; 0 = none", kHow | kPerProcess},
      {"freeze.cache_dir", freeze<&C::cache_dir>(), any(), "",
       "folder of the cache's file, which has no name and is gone with the process; empty = one for each user in the "
       "folder for temporary files (TMPDIR)",
       kHow | kPerProcess},
      {"freeze.cache_precision", freeze<&C::cache_precision>(), words({"full", "bf16"}), "",
       "number format of what is kept; bf16: two bytes a number, rounded to nearest"},
  };
}

Keys other_keys() {
  return {
      {"replicas.local", replicas<&ReplicasConfig::local>(), between(1, 1024), "replicas",
       "replicas of the pipeline in this process", kHow | kPerWorker | kTuned},
      {"replicas.sync", replicas<&ReplicasConfig::sync>(), words({"allreduce", "ps", "none"}), "",
       "how replicas agree: allreduce adds gradients up; ps: through a parameter server, see [ps]"},
      {"replicas.backend", replicas<&ReplicasConfig::backend>(), words({"auto", "nccl", "gloo"}), "",
       "what carries gradients between processes; auto: NCCL from GPU to GPU, else Gloo", kHow},
      {"replicas.bucket_mb", replicas<&ReplicasConfig::bucket_mb>(),
       RealRange{.low = 0, .high = 65'536, .low_open = true}, "MiB",
       "size of the gradient buckets that are reduced together", kHow},
      {"replicas.bucket_type", replicas<&ReplicasConfig::bucket_type>(), words({"full", "bf16"}), "",
       "in what gradients are added up between processes: full, their own type; bf16, half the bytes of float32, "
       "each process's share and each sum of two rounded to 8 bits"},
      {"replicas.connect_timeout_s", replicas<&ReplicasConfig::connect_timeout_s>(), real_between(0.001, 1e6), "s",
       "how long the processes of a run wait until all have been started", kHow | kPerProcess},
      {"replicas.hang_timeout_s", replicas<&ReplicasConfig::hang_timeout_s>(), real_between(5, 1e6), "s",
       "a process that shows no sign of life for so long is given up, and the run ends within two seconds",
       kHow | kPerProcess},
      {"checkpoint.every_steps", checkpoint<&CheckpointConfig::every_steps>(), at_least(0), "steps",
       "steps between checkpoints; 0 = never by steps", kHow | kPerProcess},
      {"checkpoint.every_minutes", checkpoint<&CheckpointConfig::every_minutes>(), real_at_least(0), "minutes",
       "minutes between checkpoints; 0 = never by time", kHow | kPerProcess},
      {"checkpoint.keep", checkpoint<&CheckpointConfig::keep>(), at_least(1), "checkpoints", "newest checkpoints kept",
       kHow | kPerProcess},
      {"checkpoint.best", checkpoint<&CheckpointConfig::best>(), any(), "",
       "save whenever an evaluation is the best one so far by train.best_by, and keep that checkpoint beside the "
       "newest "
       "ones",
       kHow | kPerProcess},
      {"checkpoint.at_end", checkpoint<&CheckpointConfig::at_end>(), any(), "",
       "save after the last step; false: for runs of which only the records are wanted", kHow | kPerProcess},
      {"profile.level", field<&Config::profile, &ProfileConfig::level>(), words({"off", "events", "cupti", "torch"}),
       "",
       "events: spans of load, forward, backward, transfer, all-reduce and optimizer in every step; cupti: on GPUs "
       "each kernel and copy, else events; torch: events, and LibTorch's own profiler over some steps; off: nothing",
       kHow | kPerWorker},
      {"profile.peak_tflops", field<&Config::profile, &ProfileConfig::peak_tflops>(), real_at_least(0), "TFLOP/s",
       "peak of one device at the run's precision, by which model FLOP/s become a utilisation (MFU); 0 = unknown",
       kHow | kPerProcess},
      {"profile.steps", field<&Config::profile, &ProfileConfig::steps>(), between(1, 1'000'000), "steps",
       "training steps that `sluice profile` times, after a few that warm up", kHow | kPerWorker},
      {"log.every", field<&Config::log, &LogConfig::every>(), at_least(1), "steps",
       "steps between two lines in the log (metrics.jsonl has every step)", kHow | kPerProcess},
      {"log.lines", field<&Config::log, &LogConfig::lines>(), words({"short", "full"}), "",
       "short = one line every log.every steps; full = before it the nine lines that users of PipeTransformer know",
       kHow | kPerProcess},
      {"log.tensorboard", field<&Config::log, &LogConfig::tensorboard>(), any(), "",
       "write event files for TensorBoard", kHow | kPerProcess},
      {"log.csv", field<&Config::log, &LogConfig::csv>(), any(), "",
       "write the numbers of every step into metrics.csv, too, and those of every evaluation into evaluations.csv",
       kHow | kPerProcess},
  };
}

}  // namespace

std::span<const Key> schema() {
  static const Keys kKeys = internal::joined({device_keys, model_keys, data_keys, internal::train_keys, pipeline_keys,
                                              internal::ps_keys, freeze_keys, other_keys});
  return kKeys;
}

const Key* find_key(std::string_view name) {
  const auto found = std::ranges::find(schema(), name, &Key::name);
  return found == schema().end() ? nullptr : &*found;
}

bool has(std::string_view key, Trait trait) {
  const Key* const row = find_key(key);
  return row != nullptr && row->has(trait);
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const auto& key : schema()) {
    if (names.empty() || names.back() != key.table()) names.emplace_back(key.table());
  }
  return names;
}

}  // namespace sluice::config
