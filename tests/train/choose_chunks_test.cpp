// How pipeline.chunks = "auto" ends where a trial fails. Which numbers a limit leaves out: memory_limit_test.cpp,
// choose_plan_test.cpp.
#include "train/plan/choose_chunks.h"
#include "train/plan/composition.h"
#include "train/setup/step_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "core/error.h"
#include "models/model.h"
#include "support/toy_model.h"

namespace sluice::train {
namespace {

using namespace std::chrono_literals;

config::Config two_stages() {
  config::Config config;
  config.device.list.choice = "cpu";
  config.device.threads = 1;
  config.model.name = "resnet8";
  config.model.image_size = 16;
  config.data.name = "shapes";
  config.data.samples = 64;
  config.data.workers = 0;
  config.train.global_batch = 16;
  config.pipeline.stages = 2;
  config.pipeline.chunks = std::nullopt;
  return config;
}

// What an abandoned thread uses outlives the test.
struct Neighbour {
  std::atomic<bool> is_busy = false;
  std::atomic<bool> may_end = false;
};

// The model with a probe before it and one after it.
std::unique_ptr<engine::Engine> with_probes(const Setup& setup, const std::function<void()>& first,
                                            const std::function<void()>& last) {
  engine::EngineOptions options = engine_options(setup);
  options.compose.make_layers = [&setup, first, last] {
    pipeline::LayerList layers = models::make_model(setup.model).layers;
    const auto probe = [](const std::string& name, const std::function<void()>& action) {
      return std::make_unique<sluice::test::ProbeLayer>(name, [action](const nn::ForwardContext&) { action(); });
    };
    layers.insert(layers.begin(), probe("first", first));
    layers.push_back(probe("last", last));
    return layers;
  };
  const Plan plan{.partition = {{3, setup.layers - 1}}, .chunks = 2, .global_batch = 16};
  return std::make_unique<engine::Engine>(plan, std::move(options));
}

// Symptom: exit code 70, "a worker pool with an abandoned thread cannot run another job". Cause: a trial ran out of
// memory while a neighbour was in an action longer than the grace period, and the next number was tried.
TEST(ChooseChunks, ATrialThatLeavesAThreadBehindEndsTheRunWithItsOwnError) {
  static Neighbour neighbour;
  const train::Setup setup = make_setup(two_stages());
  const auto engine = with_probes(
      setup,
      [calls = std::make_shared<std::atomic<int>>(0)] {
        const int call = ++*calls;
        if (call == 1) throw OutOfMemoryError("one micro-batch is too large");
        if (call == 2) return;  // the first of two
        while (!neighbour.is_busy) std::this_thread::sleep_for(1ms);
        throw OutOfMemoryError("planted");
      },
      [] {
        neighbour.is_busy = true;
        while (!neighbour.may_end) std::this_thread::sleep_for(1ms);
      });
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  try {
    (void)choose_chunks(setup, *engine, as_step_batch(*loader.next(), *setup.task));
    ADD_FAILURE() << "the trial did not fail";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr("planted"));
  }
  neighbour.may_end = true;
  std::this_thread::sleep_for(50ms);
}

}  // namespace
}  // namespace sluice::train
