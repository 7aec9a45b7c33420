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
       "Devices of this process. auto: GPUs, or the CPU if there are fewer than the run needs. cpu: virtual CPU "
       "devices. cuda: GPUs. An array of names: a process takes as many as it needs, from the front. If there are "
       "enough for all processes of the machine, each takes its own part. Names may repeat",
       kHow | kPerProcess},
      {"device.threads", device<&C::threads>(), between(0, 1024), "threads",
       "Threads of each CPU device. 0: share the cores evenly. All devices together may use at most 64 threads per "
       "core",
       kHow | kPerProcess | kAdvanced},
      {"device.memory_limit", device<&C::memory_limit>(), between(0, kLargestMemory), "bytes",
       "Limit on the tensors of each device, CPU devices included: a number, or a text such as \"512MiB\". A step "
       "that needs more ends the run with exit code 4. 0: no limit",
       kHow | kPerProcess},
      {"device.tf32", device<&C::tf32>(), any(), "",
       "Whether GPUs use TF32 for float32 matrix products and convolutions: inputs are rounded to 10 bits, sums stay "
       "float32. Tensor cores then multiply about 8 times as fast. The relative error, about 1e-3, is below that of "
       "bf16. `sluice step` and `sluice eval --logits` never use TF32",
       kAdvanced},
      {"device.cuda_graphs", device<&C::cuda_graphs>(), any(), "",
       "Whether GPUs run training steps as CUDA graphs, so that short kernels do not wait for the CPU. The second of "
       "two steps with the same batch shape is captured; later steps launch the graph. Results do not change. Steps "
       "of another shape, such as a short last batch, run without a graph",
       kHow | kAdvanced},
  };
}

Keys model_keys() {
  using C = ModelConfig;
  return {
      {"model.name", model<&C::name>(), any(), "", "Model; `sluice models` lists the names"},
      {"model.size", model<&C::size>(), any(), "",
       "Size within the model's family, if the family has several; `sluice models` lists the sizes"},
      {"model.file", model<&C::file>(), any(), "",
       "For model.name = \"pt2\": a PyTorch model that scripts/export_model.py wrote, with its weights", kPerProcess},
      {"model.config", model<&C::config>(), any(), "",
       "A config.json of Hugging Face, with the sizes of bert, llama or gpt2. Empty: model.size gives them",
       kPerProcess},
      {"model.task", model<&C::task>(), words({"", "lm", "mlm", "classify", "tokens", "qa"}), "",
       "What a text model is trained for. lm: the next token. mlm: masked tokens. classify: a class of the text, or "
       "with model.classes = 1 a number. tokens: a class of each word. qa: the answer to a question, as a part of a "
       "text. Empty: qa for the data set squad, classify for bert with jsonl or csv, else mlm for bert and lm for the "
       "others"},
      {"model.classes", model<&C::classes>(), between(0, 10'000'000), "",
       "Outputs of the classifier. 0: the number of classes in the data", kAdvanced},
      {"model.image_size", model<&C::image_size>(), between(0, 65'536), "pixels",
       "Height and width of the input; images of another size are resized. 0: the size of the data's images, or 224 "
       "for image files"},
      {"model.patch_size", model<&C::patch_size>(), between(1, 65'536), "pixels",
       "Height and width of a patch of a vision transformer", kAdvanced},
      {"model.stem", model<&C::stem>(), words({"cifar", "imagenet"}), "",
       "First layers of resnet18 and deeper resnets. cifar: 3x3 convolution that keeps the resolution. imagenet: 7x7 "
       "stride-2 convolution and max-pooling, which reduce the resolution by 4",
       kAdvanced},
      {"model.channels", model<&C::channels>(), between(0, 65'536), "",
       "Channels of the input. 0: the number of channels in the data", kAdvanced},
      {"model.vocabulary", model<&C::vocabulary>(), between(0, 10'000'000), "tokens",
       "Vocabulary size of a language model. 0: from model.size", kAdvanced},
      {"model.context", model<&C::context>(), between(0, 1'000'000), "tokens",
       "Number of positions of a language model, which is also the length of its training sequences. 0: from "
       "model.size",
       kAdvanced},
      {"model.dropout", model<&C::dropout>(), fraction(-1), "",
       "Dropout probability of activations. Below 0: the values in model.config. VGG has dropout after its first two "
       "linear "
       "layers (torchvision uses 0.5)"},
      {"model.stochastic_depth", model<&C::stochastic_depth>(), fraction(), "",
       "Probability that a sample skips a block of convnext: this value in the last block, falling linearly to 0 in "
       "the first. torchvision uses 0.1 (tiny), 0.4 (small), 0.5 (base, large)",
       kAdvanced},
      {"model.weights", model<&C::weights>(), any(), "",
       "Starting weights, from Sluice or another library: a safetensors file, a folder or index of several files, or "
       "a run directory (its newest checkpoint). The head may have another number of classes. Empty: random weights",
       kPerProcess},
  };
}

Keys data_keys() {
  using C = DataConfig;
  return {
      {"data.name", data<&C::name>(), any(), "", "Data set; `sluice datasets` lists the names", kSource},
      {"data.path", data<&C::path>(), any(), "",
       "Folder of the data set, or the file of a text data set. Empty: the default path that `sluice datasets` lists",
       kSource | kPerProcess},
      {"data.workers", data<&C::workers>(), between(0, 256), "threads",
       "Loader threads that prepare batches. 0: the training thread prepares them", kHow | kPerProcess},
      {"data.prefetch", data<&C::prefetch>(), between(1, 1024), "batches", "Batches that are prepared ahead",
       kHow | kPerProcess | kAdvanced},
      {"data.limit", data<&C::limit>(), at_least(0), "samples",
       "Use only this many samples of the training set and of the test set: the first ones, or evenly spaced ones for "
       "image_folder; of squad also the other windows of the last question. 0: all",
       kSource},
      {"data.samples", data<&C::samples>(), at_least(1), "samples",
       "Training samples of a synthetic data set; its test set adds a fifth of that number", kSource | kAdvanced},
      {"data.resize", data<&C::resize>(), between(0, 65'536), "pixels",
       "Length of an image's shorter side after resizing, before the centre crop of model.image_size. Used in "
       "evaluation, and in training without data.crop_area. 0: model.image_size",
       kAdvanced},
      {"data.interpolation", data<&C::interpolation>(), words({"bilinear", "bicubic"}), "",
       "Interpolation for resizing images; antialiasing is always on", kAdvanced},
  };
}

Keys augmentation_keys() {
  using C = DataConfig;
  return {
      {"data.crop_area", data<&C::crop_area>(), real_between(0, 1), "share",
       "Random resized crops in training: smallest share of the image's area in a crop, for example 0.08. 0: off"},
      {"data.crop_padding", data<&C::crop_padding>(), between(0, 64), "pixels",
       "Random crops in training, after padding each side by this many pixels. 0: off"},
      {"data.flip", data<&C::flip>(), any(), "", "Mirror each training image horizontally with probability 0.5"},
      {"data.brightness", data<&C::brightness>(), real_between(0, 10), "",
       "Colour jitter in training (torchvision's ColorJitter): largest deviation from 1 of the random factor on the "
       "brightness. 0: off",
       kAdvanced},
      {"data.contrast", data<&C::contrast>(), real_between(0, 10), "",
       "Colour jitter in training: largest deviation from 1 of the random factor on the contrast. 0: off", kAdvanced},
      {"data.saturation", data<&C::saturation>(), real_between(0, 10), "",
       "Colour jitter in training: largest deviation from 1 of the random factor on the saturation. 0: off", kAdvanced},
      {"data.hue", data<&C::hue>(), real_between(0, 0.5), "",
       "Colour jitter in training: largest random shift of the hue, as a share of the colour circle. 0: off",
       kAdvanced},
      {"data.rand_augment", data<&C::rand_augment>(), between(0, 16), "operations",
       "RandAugment in training: operations per image, drawn from torchvision's 14. 0: off", kAdvanced},
      {"data.rand_augment_strength", data<&C::rand_augment_strength>(), between(0, 30), "",
       "RandAugment in training: magnitude of the operations, on torchvision's scale", kAdvanced},
      {"data.erasing", data<&C::erasing>(), real_between(0, 1), "",
       "RandomErasing in training, as in torchvision: probability that a part of the image is erased. 0: off",
       kAdvanced},
      {"data.mixup", data<&C::mixup>(), real_at_least(0), "",
       "Mixup in training: alpha of the Beta distribution of the blending weight. Each batch and its targets are "
       "blended with the same batch shifted by one sample. 0: off",
       kAdvanced},
      {"data.cutmix", data<&C::cutmix>(), real_at_least(0), "",
       "CutMix in training: alpha of the Beta distribution of the area of the rectangle that is copied from the "
       "previous "
       "sample. If data.mixup is also set, each batch uses one of the two, with equal probability. 0: off",
       kAdvanced},
  };
}

Keys epoch_keys() {
  using C = DataConfig;
  return {
      {"data.order", data<&C::order>(), words({"shuffled", "shards"}), "",
       "Order of the samples in an epoch. shuffled: any order. shards: tar files in shuffled order, each read from "
       "start to end, so that disk reads are sequential",
       kAdvanced},
      {"data.shuffle_window", data<&C::shuffle_window>(), at_least(1), "samples",
       "For data.order = \"shards\": consecutive samples that are shuffled among each other", kAdvanced},
      {"data.validation", data<&C::validation>(), real_between(0, 0.9), "share",
       "Share of the training set (of squad: of its questions) that is held out and evaluated instead of the test set. "
       "0: none"},
      {"data.broken", data<&C::broken>(), words({"fatal", "skip"}), "",
       "What happens if an image cannot be read. fatal: the run ends. skip: the image is logged and counted, and the "
       "next sample replaces it",
       kHow | kAdvanced},
      {"data.views", data<&C::views>(), between(0, 1'000'000), "views",
       "Different random views (crops and flips) per sample, which the epochs use in turn. 0: a new view in each epoch",
       kAdvanced},
  };
}

Keys pipeline_keys() {
  using C = PipelineConfig;
  return {
      {"pipeline.stages", pipeline<&C::stages>(), between(1, 1024), "devices",
       "Devices of each replica; a device holds one stage, or pipeline.virtual stages", kHow | kPerWorker | kTuned},
      {"pipeline.virtual", pipeline<&C::virtual_stages>(), between(1, 1024), "stages",
       "Stages per device. auto: 2 for interleaved, looped-bfs, zb-v and dualpipe-v, 1 for other schedules",
       kHow | kPerWorker | kAdvanced},
      {"pipeline.chunks", pipeline<&C::chunks>(), between(1, 65'536), "micro-batches",
       "Micro-batches per replica and step. auto: the fastest of several numbers, timed before the first step. With "
       "train.deterministic no number is timed: it is pipeline.stages, or more if the schedule or device.memory_limit "
       "needs more",
       kHow | kPerWorker | kTuned},
      {"pipeline.schedule", pipeline<&C::schedule>(),
       words({"gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"}), "",
       "Pipeline schedule: the order of the micro-batches on the stages. `sluice schedule` draws each schedule and "
       "computes its cost",
       kHow | kPerWorker | kTuned},
      {"pipeline.order", pipeline<&C::order>(), any(), "",
       "Schedule file to use instead of pipeline.schedule, in the format of `sluice schedule NAME --text FILE`. "
       "pipeline.stages, virtual and chunks follow from the file if they are at their defaults. Empty: none",
       kHow | kPerWorker | kAdvanced},
      {"pipeline.partition", pipeline<&C::partition>(), at_least(1), "layers",
       "Layers per stage, first stage first. auto: balance the measured layer costs", kHow | kPerWorker | kTuned},
      {"pipeline.recompute", pipeline<&C::recompute>(), words({"none", "layer", "auto"}), "",
       "Activation recomputation. none: keep all activations. layer: keep only the inputs of layers; backward runs "
       "each layer's forward again. auto: as layer, in stages that would otherwise exceed device.memory_limit. A "
       "list: \"none\" or \"layer\" for each stage of pipeline.partition",
       kHow | kPerWorker | kTuned},
      {"pipeline.cost_cache", pipeline<&C::cost_cache>(), any(), "",
       "Folder that keeps measured layer costs for later runs. auto: sluice/costs in the user's cache folder "
       "(XDG_CACHE_HOME). off: measure in every run",
       kHow | kPerProcess | kAdvanced},
      {"pipeline.planning_budget_s", pipeline<&C::planning_budget_s>(), real_between(0, 1e6), "s",
       "Time for measurements before the first step: a third for layer costs, the rest for steps with different "
       "numbers of chunks. Measurements that every plan needs are always made. The log lists what was left out",
       kHow | kPerWorker | kAdvanced},
      {"pipeline.batch_norm", pipeline<&C::batch_norm>(), words({"micro", "deferred", "sync"}), "",
       "Statistics of batch normalisation. micro: of each micro-batch, and each one updates the running statistics. "
       "deferred: of each micro-batch, but running statistics are updated once per mini-batch. sync: of the "
       "micro-batch over all replicas",
       kAdvanced},
      {"pipeline.changes", pipeline<&C::changes>(), any(), "",
       "Changes of the plan during the run: \"20: stages = 2, chunks = 4\" takes effect after step 20. A change may "
       "set stages, virtual, chunks, schedule, partition, recompute or replicas (replicas.local); the rest stays. "
       "chunks = auto is not timed then: it is one per device, or as many as the schedule needs",
       kHow | kPerWorker | kAdvanced, R"(["20: stages = 2, chunks = 4"])"},
      {"pipeline.replan", pipeline<&C::replan>(), words({"off", "auto"}), "",
       "auto: when devices become slower or faster, the partition and the replicas' shares change to shorten the "
       "steps. pipeline.partition is then the first partition, and replicas.shares = \"equal\" means \"measured\"",
       kHow},
  };
}

Keys freeze_keys() {
  using C = FreezeConfig;
  return {
      {"freeze.policy", freeze<&C::policy>(), words({"none", "linear", "gradient", "gradient-change", "schedule"}), "",
       "Which of the model's first blocks stop training, decided per epoch; the head is always trained. linear: "
       "ceil(L (1 - (1 - freeze.alpha)^epoch)) of L blocks. gradient: up to the block whose gradient, summed "
       "over an epoch, has the smallest norm, at most as many as linear. gradient-change: all blocks before the first "
       "whose summed gradient still changes much between epochs. schedule: as in freeze.schedule"},
      {"freeze.alpha", freeze<&C::alpha>(), RealRange{.low = 0, .high = 1, .low_open = true}, "",
       "Share of the trained blocks that linear freezes in each epoch, and that gradient freezes at most"},
      {"freeze.percentile", freeze<&C::percentile>(), real_between(0, 100), "%",
       "For gradient-change: a block keeps training if it changes at least as much as this percentile of all trained "
       "blocks",
       kAdvanced},
      {"freeze.schedule", freeze<&C::schedule>(), any(), "",
       "For freeze.policy = \"schedule\": \"3: 7\" freezes the first 7 blocks from epoch 3 on. A smaller number than "
       "before unfreezes blocks. Epochs count from 0, as in metrics.jsonl; the log counts from 1 and calls this epoch "
       "4",
       kAdvanced, R"(["3: 7", "5: 9"])"},
      {"freeze.unit", freeze<&C::unit>(), words({"block", "half"}), "",
       "What policies count. block: whole blocks. half: attention and MLP of a transformer block separately",
       kAdvanced},
      {"freeze.elastic", freeze<&C::elastic>(), any(), "",
       "Whether the pipeline may move to fewer devices after layers freeze, if steps are predicted to be faster and "
       "the move to pay off within the epoch. With train.deterministic it never moves",
       kHow | kAdvanced},
      {"freeze.replicas", freeze<&C::replicas>(), any(), "",
       "Whether devices that the pipeline releases become additional replicas", kHow | kAdvanced},
      {"freeze.cache", freeze<&C::cache>(), words({"off", "memory", "disk", "auto"}), "",
       "Where outputs of frozen layers are kept, so that these layers run once per sample instead of in every epoch. "
       "off: not kept. auto: in memory, then on disk, if reading from memory is measured to be faster than the "
       "layers. Crops and flips need data.views. Not with train.deterministic",
       kHow | kAdvanced},
      {"freeze.cache_bytes", freeze<&C::cache_bytes>(), between(0, kLargestMemory), "bytes",
       "Largest memory of this cache per process: a number, or a text such as \"512MiB\"",
       kHow | kPerProcess | kAdvanced},
      {"freeze.cache_disk_bytes", freeze<&C::cache_disk_bytes>(), between(0, kLargestMemory), "bytes",
       "Largest disk space of this cache per process. 0: none", kHow | kPerProcess | kAdvanced},
      {"freeze.cache_dir", freeze<&C::cache_dir>(), any(), "",
       "Folder of the cache file, which has no name and disappears with the process. Empty: a folder per user in the "
       "folder for temporary files (TMPDIR)",
       kHow | kPerProcess | kAdvanced},
      {"freeze.cache_precision", freeze<&C::cache_precision>(), words({"full", "bf16"}), "",
       "Number format of the cache. full: the type of the outputs. bf16: two bytes per number, rounded to nearest",
       kAdvanced},
  };
}

Keys other_keys() {
  return {
      {"checkpoint.every_steps", checkpoint<&CheckpointConfig::every_steps>(), at_least(0), "steps",
       "Steps between checkpoints. 0: no checkpoints by steps", kHow | kPerProcess},
      {"checkpoint.every_minutes", checkpoint<&CheckpointConfig::every_minutes>(), real_at_least(0), "minutes",
       "Minutes between checkpoints. 0: no checkpoints by time", kHow | kPerProcess},
      {"checkpoint.keep", checkpoint<&CheckpointConfig::keep>(), at_least(1), "checkpoints",
       "Newest checkpoints to keep", kHow | kPerProcess},
      {"checkpoint.best", checkpoint<&CheckpointConfig::best>(), any(), "",
       "Save a checkpoint after each evaluation that is the best so far (train.best_by), and keep the best one in "
       "addition to the newest",
       kHow | kPerProcess},
      {"checkpoint.at_end", checkpoint<&CheckpointConfig::at_end>(), any(), "",
       "Save a checkpoint after the last step. false: for runs of which only the records are needed",
       kHow | kPerProcess | kAdvanced},
      {"profile.level", field<&Config::profile, &ProfileConfig::level>(), words({"off", "events", "cupti", "torch"}),
       "",
       "What is recorded of each step. off: nothing. events: spans of load, forward, backward, transfer, all-reduce "
       "and optimizer. cupti: each kernel and copy on GPUs, otherwise events. torch: events, and LibTorch's own "
       "profiler for some steps",
       kHow | kPerWorker},
      {"profile.peak_tflops", field<&Config::profile, &ProfileConfig::peak_tflops>(), real_at_least(0), "TFLOP/s",
       "Peak of one device at the run's precision, from which the model FLOP/s utilisation (MFU) follows. 0: unknown",
       kHow | kPerProcess | kAdvanced},
      {"profile.steps", field<&Config::profile, &ProfileConfig::steps>(), between(1, 1'000'000), "steps",
       "Training steps that `sluice profile` times, after a few warm-up steps", kHow | kPerWorker | kAdvanced},
  };
}

}  // namespace

std::span<const Key> schema() {
  static const Keys kKeys =
      internal::joined({device_keys, model_keys, internal::lora_keys, data_keys, augmentation_keys, epoch_keys,
                        internal::text_keys, internal::train_keys, pipeline_keys, internal::ps_keys, freeze_keys,
                        internal::replica_keys, other_keys, internal::log_keys});
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
