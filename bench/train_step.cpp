// train_step: samples/s of Sluice's own training step (the one that `sluice train` runs, without loading data) for a
// model, a cut and a number of replicas, on virtual CPU devices and synthetic images. Takes turns with the peer
// (bench/peer_torch.py) under bench/compare.py: for every line on standard input it times `--steps` steps and prints
// one JSON object (line `plain`: without recording spans); without input it runs `--repeats` times. Started as several
// processes (RANK, WORLD_SIZE, ...), each takes its share of the batch.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>

#include "comm/processes.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/layer_cost.h"
#include "device/cpu_threads.h"
#include "device/memory.h"
#include "models/model.h"
#include "profiler/breakdown.h"
#include "train/compose.h"
#include "train/train_step.h"
#include "tune/partition.h"

namespace sluice {
namespace {

struct Arguments {
  models::ModelOptions model;
  Plan plan{.partition = {}, .global_batch = 64, .schedule = "1f1b"};
  int stages = 1;
  int threads = 2;  // over all devices
  int steps = 20;
  int repeats = 5;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Times training steps of one model");
  app.add_option("MODEL", arguments.model.name)->required();
  app.add_option("--size", arguments.model.size);
  app.add_option("--batch", arguments.plan.global_batch, "Samples per step, over all replicas and processes");
  app.add_option("--stages", arguments.stages);
  app.add_option("--replicas", arguments.plan.replicas);
  app.add_option("--chunks", arguments.plan.chunks);
  app.add_option("--threads", arguments.threads, "Threads, shared evenly by the devices");
  app.add_option("--steps", arguments.steps, "Steps per measurement");
  app.add_option("--repeats", arguments.repeats, "Measurements when nothing comes on standard input");
  app.parse(argc, argv);
  return arguments;
}

// Layers cut evenly by their number, whatever each of them costs.
Partition even_cut(int layers, int stages) {
  return tune::balance(std::vector<LayerCost>(layers, LayerCost{.forward = {.a_s = 1.0}}), 1, stages);
}

class Bench {
 public:
  Bench(const Arguments& arguments, const comm::World& world)
      : arguments_(arguments),
        processes_(world, {}, {.connect = std::chrono::minutes(1), .operation = std::chrono::minutes(1)}),
        composition_(make_composition(arguments_, processes_)),
        step_(composition_, {.seed = 1}),
        batch_(make_batch(arguments_, world)) {
    for (int i = 0; i < 3; ++i) run();
  }

  // records: spans, and the breakdown of every step, as `sluice train` does.
  void measure(bool records) {
    composition_.executor->recorder().switch_on(records);
    if (composition_.communicator) composition_.communicator->barrier();
    const Nanoseconds begin = now_ns();
    const std::clock_t cpu_begin = std::clock();  // processor time of all threads: what to compare on a busy machine
    double loss = 0;
    spans_ = 0;
    for (int i = 0; i < arguments_.steps; ++i) loss = run();
    const double seconds = to_s(now_ns() - begin);
    const double cpu_seconds = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
    std::printf(
        "{\"side\": \"sluice\", \"model\": \"%s\", \"samples_per_s\": %.2f, \"step_ms\": %.3f, \"cpu_ms\": %.3f, "
        "\"loss\": %.5f, \"spans\": %.1f}\n",
        arguments_.model.name.c_str(), static_cast<double>(arguments_.plan.global_batch * arguments_.steps) / seconds,
        1e3 * seconds / arguments_.steps, 1e3 * cpu_seconds / arguments_.steps, loss,
        static_cast<double>(spans_) / arguments_.steps);
    std::fflush(stdout);
  }

 private:
  static train::Composition make_composition(Arguments& arguments, comm::Processes& processes) {
    const bool is_vit = arguments.model.name == "vit";
    arguments.plan.partition = even_cut(models::count_layers(arguments.model), arguments.stages);
    const int devices = arguments.stages * arguments.plan.replicas;
    return train::compose(arguments.plan,
                          {.model_name = arguments.model.name,
                           .make_layers = [&] { return models::make_model(arguments.model).layers; },
                           .devices = device::choose_devices({"cpu"}, devices),
                           .cpu_threads = std::max(arguments.threads / devices, 1),
                           .optimizer = {.kind = is_vit ? "adamw" : "momentum", .weight_decay = is_vit ? 0.01 : 5e-4},
                           .processes = &processes});
  }

  static train::StepBatch make_batch(const Arguments& arguments, const comm::World& world) {
    const std::int64_t n = arguments.plan.global_batch / world.size;
    at::manual_seed(world.rank);
    return {{at::randn({n, arguments.model.channels, arguments.model.image_size, arguments.model.image_size}),
             at::randint(0, arguments.model.classes, {n}, at::kLong), at::arange(n) + n * world.rank},
            n * world.size};
  }

  double run() {
    const Nanoseconds begin = now_ns();
    const double loss = step_.run(batch_, number_++, arguments_.model.name == "vit" ? 1e-4 : 0.01).loss;
    const StepSpans spans = composition_.executor->recorder().collect(number_, begin, now_ns());
    for (const auto& place : spans.places) spans_ += static_cast<std::int64_t>(place.spans.size());
    check(profiler::break_down(spans).dropped == 0, "a step has more spans than are kept");
    return loss;
  }

  Arguments arguments_;
  comm::Processes processes_;
  train::Composition composition_;
  train::TrainStep step_;
  train::StepBatch batch_;
  std::int64_t number_ = 0;
  std::int64_t spans_ = 0;  // since the measurement began
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) try {
  sluice::device::tune_malloc();  // this and the next as `sluice` itself does
  sluice::device::count_memory();
  sluice::device::use_cpu_threads(1);
  const sluice::Arguments arguments = sluice::parse(argc, argv);
  std::signal(SIGPIPE, SIG_IGN);  // as comm/processes.h asks for
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
