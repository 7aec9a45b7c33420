// train_step: samples/s of Sluice's training step (as in `sluice train`, without loading data) for a model, a cut and a
// number of replicas, on virtual CPU devices and random samples. bench/compare.py and bench/pipelining.py alternate
// it with the peers (bench/peer_torch.py, bench/peer_pipelining.py). For every line on standard input it times
// `--steps` steps and prints one JSON object (line `plain`: without recording spans); without input it runs `--repeats`
// times. Started as several processes (RANK, WORLD_SIZE, ...), each takes its share of the batch. pass_times.h defines
// pass_ms, forward_ms, backward_ms and frozen_ms, which cover all passes of this process; first_losses are those of the
// first steps, before the timed ones.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/processes.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "device/cpu_threads.h"
#include "device/memory.h"
#include "engine/compose.h"
#include "engine/train_step.h"
#include "graph/exported_model.h"
#include "measure/measure_layers.h"
#include "models/model.h"
#include "pass_times.h"
#include "pipeline/schedule/generators.h"
#include "profiler/breakdown.h"
#include "profiler/layer_profile.h"
#include "storage/safetensors.h"
#include "train/setup/starting_weights.h"
#include "train/setup/task_options.h"
#include "tune/make_plan.h"

namespace sluice {
namespace {

struct Arguments {
  models::ModelOptions model;
  std::filesystem::path start;
  Plan plan{.partition = {}, .global_batch = 64, .schedule = "1f1b"};
  nn::Winograd winograd = nn::Winograd::k2x2;
  bool measured_cut = false;
  bool sums_gradients = false;
  bool is_adamw = false;
  int stages = 1;   // devices of a replica
  int threads = 2;  // over all devices
  int steps = 20;
  int repeats = 5;

  [[nodiscard]] bool uses_adamw() const {
    return model.name == "vit" || models::kind_of(model) == SampleKind::kTokens || is_adamw;
  }
  [[nodiscard]] task::TaskPtr task() const { return train::task_of(model, nullptr, /*label_smoothing=*/0); }
  [[nodiscard]] bool has_weights() const { return !start.empty() && model.file.empty(); }
  [[nodiscard]] int devices() const { return stages * plan.replicas; }
  [[nodiscard]] int threads_per_device() const { return std::max(threads / devices(), 1); }
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Times training steps of one model");
  app.add_option("MODEL", arguments.model.name)->required();
  app.add_option("--size", arguments.model.size);
  app.add_option("--file", arguments.model.file, "For the model pt2: the file");
  app.add_flag("--adamw", arguments.is_adamw, "Train with AdamW, as transformers do");
  app.add_option("--batch", arguments.plan.global_batch, "Samples per step, over all replicas and processes");
  app.add_option("--image-size", arguments.model.image_size);
  app.add_option(
         "--start", arguments.start,
         "Folder with batch.safetensors; of bench/peer_text.py also with a model's config.json and model.safetensors")
      ->check(CLI::ExistingDirectory);
  std::string precision = "fp32";
  app.add_option("--precision", precision)->check(CLI::IsMember({"fp32", "bf16"}));
  const std::map<std::string, nn::Winograd> winograds{
      {"none", nn::Winograd::kNone}, {"2x2", nn::Winograd::k2x2}, {"4x4", nn::Winograd::k4x4}};
  app.add_option("--winograd", arguments.winograd, "As train.winograd")->transform(CLI::CheckedTransformer(winograds));
  app.add_option("--stages", arguments.stages, "Devices of a replica");
  app.add_option("--schedule", arguments.plan.schedule);
  CLI::Option* partition =
      app.add_option("--partition", arguments.plan.partition.layers_per_stage, "Layers of each stage; default: even")
          ->delimiter(',')
          ->allow_extra_args(false);
  app.add_flag("--measured-cut", arguments.measured_cut, "Cut as `sluice train` does (one process)")
      ->excludes(partition);
  app.add_flag("--sum-gradients", arguments.sums_gradients, "Add gradients up as the gradient freeze rules need it");
  app.add_option("--replicas", arguments.plan.replicas);
  app.add_option("--frozen", arguments.plan.frozen_layers, "First layers that are not trained (with an even cut)");
  app.add_option("--chunks", arguments.plan.chunks);
  app.add_option("--threads", arguments.threads, "Threads, shared evenly by the devices");
  app.add_option("--steps", arguments.steps, "Steps per measurement");
  app.add_option("--repeats", arguments.repeats, "Measurements when nothing comes on standard input");
  app.parse(argc, argv);
  arguments.model.in_bf16 = precision == "bf16";
  arguments.model.has_own_fields = !arguments.model.file.empty();
  if (!arguments.model.file.empty())
    arguments.model.classes = arguments.model.channels = arguments.model.image_size = 0;
  if (arguments.has_weights()) arguments.model.config = arguments.start / "config.json";
  arguments.plan.virtual_stages = pipeline::default_virtual_stages(arguments.plan.schedule);
  return arguments;
}

// Cuts by the number of layers, whatever their cost.
Partition even_cut(int layers, int stages) {
  Partition partition{std::vector<int>(stages, layers / stages)};
  for (int s = stages - layers % stages; s < stages; ++s) ++partition.layers_per_stage[s];
  return partition;
}

// Cuts like pipeline.partition = "auto".
Partition measured_cut(const Arguments& arguments) {
  const Plan& plan = arguments.plan;
  const std::int64_t micro_batch =
      std::max<std::int64_t>(plan.global_batch / (std::int64_t{plan.replicas} * plan.chunks), 1);
  const measure::Workload workload{.model = arguments.model,
                                   .task = arguments.task(),
                                   .device = device::choose_devices({"cpu"}, 1).front(),
                                   .threads = arguments.threads_per_device(),
                                   .numerics = {.winograd = arguments.winograd}};
  const profiler::LayerProfile profile{
      .layers = measure::measure_layers(workload,
                                        {.sizes = {micro_batch}, .needed_size = micro_batch, .with_memory = false})};
  return tune::make_plan({.plan = plan,
                          .devices = arguments.stages,
                          .replicas = plan.replicas,
                          .layers = static_cast<int>(profile.layers.size())},
                         profile.costs(), {})
      .partition;
}

Partition choose_cut(const Arguments& arguments) {
  const Plan& plan = arguments.plan;
  const int stages = arguments.stages * plan.virtual_stages;
  if (arguments.measured_cut) return measured_cut(arguments);
  if (plan.stages() == 0) return even_cut(models::count_layers(arguments.model) - plan.frozen_layers, stages);
  if (plan.stages() != stages)
    throw ConfigError("--partition has ", plan.stages(), " stages; --stages and --schedule have ", stages);
  return plan.partition;
}

at::Tensor draw(const models::TensorInfo& info, std::int64_t samples) {
  std::vector<std::int64_t> sizes = info.sizes;
  sizes.insert(sizes.begin(), samples);
  return info.bound == 0 ? at::randn(sizes) : at::randint(info.lowest, info.bound, sizes, at::kLong);
}

// This process's share of the batch in the folder `--start`, or of random samples.
engine::StepBatch make_batch(const Arguments& arguments, const comm::World& world) {
  const std::int64_t n = arguments.plan.global_batch / world.size, first = n * world.rank;
  storage::TensorMap given;
  if (!arguments.start.empty()) given = storage::read_safetensors(arguments.start / "batch.safetensors").tensors;
  at::manual_seed(world.rank);
  const auto field = [&](const models::TensorInfo& info) {
    const auto found = given.find(info.name);
    if (found == given.end()) return info.is_optional ? at::Tensor() : draw(info, n);
    if (found->second.size(0) != n * world.size)
      throw ConfigError("--batch ", n * world.size, ", but the file has ", found->second.size(0),
                        " samples; set it so");
    return found->second.narrow(0, first, n);
  };
  const models::Model model = models::make_without_values(arguments.model);
  pipeline::MicroBatch batch{.inputs = {}, .targets = {}, .sample_ids = at::arange(first, first + n)};
  for (const models::TensorInfo& info : model.inputs) batch.inputs.push_back(field(info));
  while (!batch.inputs.back().defined()) batch.inputs.pop_back();
  for (const models::TensorInfo& info : model.targets) batch.targets.push_back(field(info));
  return {std::move(batch), n * world.size};
}

class Bench {
 public:
  Bench(const Arguments& arguments, const comm::World& world)
      : arguments_(arguments),
        processes_(world, {}, {.connect = std::chrono::minutes(1), .operation = std::chrono::minutes(1)}),
        composition_(make_composition(arguments_, processes_)),
        step_(composition_, {.task = arguments.task(),
                             .seed = 1,
                             .numerics = {.winograd = arguments.winograd},
                             .sums_gradients = arguments.sums_gradients}),
        batch_(make_batch(arguments_, world)),
        passes_(composition_.plan.stages()) {
    for (int i = 0; i < 3; ++i) first_losses_.push_back(run());
  }

  // records: spans and the breakdown of every step, as `sluice train` does.
  void measure(bool records) {
    composition_.executor->recorder().switch_on(records);
    composition_.sync->sum(at::zeros({1}));  // all processes begin together
    const Nanoseconds begin = now_ns();
    const std::clock_t cpu_begin = std::clock();  // processor time of all threads, for comparisons on a busy machine
    double loss = 0;
    spans_ = 0;
    passes_ = PassTimes(composition_.plan.stages());
    for (int i = 0; i < arguments_.steps; ++i) loss = run();
    const double seconds = to_s(now_ns() - begin);
    const double cpu_seconds = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    const Plan& plan = composition_.plan;
    const nlohmann::ordered_json result{
        {"side", "sluice"},
        {"model", arguments_.model.name},
        {"schedule", plan.schedule},
        {"partition", plan.partition.layers_per_stage},
        {"chunks", plan.chunks},
        {"samples_per_s", static_cast<double>(plan.global_batch * arguments_.steps) / seconds},
        {"step_ms", 1e3 * seconds / arguments_.steps},
        {"cpu_ms", 1e3 * cpu_seconds / arguments_.steps},
        {"loss", loss},
        {"first_losses", first_losses_},
        {"spans", static_cast<double>(spans_) / arguments_.steps},
        {"pass_ms", passes_.pass_ms()},
        {"forward_ms", passes_.forward_ms(plan.chunks)},
        {"backward_ms", passes_.backward_ms(plan.chunks)},
        {"frozen_ms", passes_.frozen_ms()},
    };
    std::printf("%s\n", result.dump().c_str());
    std::fflush(stdout);
  }

 private:
  static engine::Composition make_composition(Arguments& arguments, comm::Processes& processes) {
    arguments.plan.partition = choose_cut(arguments);
    engine::ComposeOptions options{.model_name = arguments.model.name};
    options.make_layers = [&] { return models::make_model(arguments.model).layers; };
    options.devices = device::choose_devices({"cpu"}, arguments.devices());
    options.cpu_threads = arguments.threads_per_device();
    options.numerics.winograd = arguments.winograd;
    options.optimizer.kind = arguments.uses_adamw() ? "adamw" : "momentum";
    options.optimizer.weight_decay = arguments.uses_adamw() ? 0.01 : 5e-4;
    options.communicators = std::make_shared<engine::Communicators>(processes);
    engine::Composition composition = engine::compose(arguments.plan, options);
    if (arguments.has_weights())
      train::load_starting_weights(composition, arguments.model, arguments.start / "model.safetensors");
    return composition;
  }

  double run() {
    const Nanoseconds begin = now_ns();
    const double lr = arguments_.uses_adamw() ? 1e-4 : 0.01;
    const double loss = step_.run(batch_, number_++, lr, {.counts_scores = true}).loss;
    const StepSpans spans = composition_.executor->recorder().collect(number_, begin, now_ns());
    for (const auto& slot : spans.slots) spans_ += static_cast<std::int64_t>(slot.spans.size());
    passes_.add(spans);
    check(profiler::break_down(spans).dropped == 0, "no dropped spans in a step");
    return loss;
  }

  Arguments arguments_;
  comm::Processes processes_;
  engine::Composition composition_;
  engine::TrainStep step_;
  engine::StepBatch batch_;
  std::int64_t number_ = 0;
  std::vector<double> first_losses_;
  std::int64_t spans_ = 0;  // spans_ and passes_: of the current measurement
  PassTimes passes_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) try {
  sluice::device::tune_malloc();  // this and the next call as in `sluice` itself
  sluice::device::count_memory();
  sluice::device::use_cpu_threads(1);
  sluice::graph::add_exported_models();
  const sluice::Arguments arguments = sluice::parse(argc, argv);
  sluice::quiet_console();
  std::signal(SIGPIPE, SIG_IGN);  // as comm/processes.h requires
  sluice::Bench bench(arguments, sluice::comm::choose_world({}));
  bool asked = false;
  for (std::string line; std::getline(std::cin, line);) {
    asked = true;
    bench.measure(line != "plain");
  }
  for (int i = 0; !asked && i < arguments.repeats; ++i) bench.measure(true);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_step: %s\n", error.what());
  return 2;
}
