// compose: builds the objects that run a Plan: the grid of stages on their devices, the executor, the sync between
// replicas and an optimizer per stage.
// Not here: how a Plan is decided (tune/make_plan.h); the training loop.
// Errors: ConfigError when the plan does not fit the model or the devices; OutOfMemoryError when a device's limit is
// too small for its parameters, gradients and optimizer state.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/replica_sync.h"
#include "core/plan.h"
#include "engine/communicators.h"
#include "engine/make_sync.h"
#include "engine/parameter_groups.h"
#include "engine/tied_parameters.h"
#include "optim/optimizer.h"
#include "pipeline/executor.h"
#include "pipeline/split.h"
#include "pipeline/state_memory.h"

namespace sluice::engine {

struct ComposeOptions {
  std::string model_name;                            // for messages
  std::function<pipeline::LayerList()> make_layers;  // fresh layers; called once per replica
  std::vector<device::Device> devices;               // plan.replicas x plan.devices(), replica by replica
  int cpu_threads = 1;
  std::chrono::milliseconds step_timeout{0};  // as pipeline::ExecutorOptions has it
  bool record_spans = true;
  nn::Numerics numerics = {};  // of frozen layers
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool sends_bf16 = false;  // gradients between processes: as ddp::ReducerOptions has it
  optim::OptimizerOptions optimizer;
  GroupOptions groups;
  std::shared_ptr<Communicators> communicators = nullptr;  // with the other processes of the run; null: there are none
  std::uint64_t memory_limit = 0;                          // bytes of tensors that a device may hold; 0: no limit
  pipeline::ListedSettings listed = {};                    // for what is said where the limit is too small
  // What outlives a composition (pipeline/executor.h); null: its own.
  std::shared_ptr<pipeline::DeviceThreads> threads = nullptr;
  std::shared_ptr<Recorder> recorder = nullptr;
  std::shared_ptr<pipeline::PassLimits> limits = nullptr;
  SyncFactory make_sync = engine::make_sync;
  std::shared_ptr<pipeline::FeatureSource> features = nullptr;  // of frozen layers; null: nothing is kept

  [[nodiscard]] bool has_peers() const { return communicators && communicators->has_peers(); }
};

struct Composition {
  Plan plan;
  std::unique_ptr<pipeline::Executor> executor;
  std::shared_ptr<comm::ReplicaSync> sync;
  // [device]: for synchronised batch-norm; else empty.
  std::vector<std::shared_ptr<comm::Communicator>> statistics_communicators;
  // [stage], over replica 0's values and gradients of what is trained, without the copies of tied parameters.
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers;
  // Of what is frozen, under its names in a checkpoint: kept for when it thaws. On the host.
  std::map<std::string, at::Tensor> frozen_optimizer;
  // Updates that each frozen parameter had before, by its name (engine/state.h).
  std::map<std::string, std::int64_t> frozen_updates;
  std::vector<TiedParameter> tied;
  std::shared_ptr<pipeline::FeatureSource> features;
  bool has_new_weights = true;  // that `features` has not been told of

  // To be called before each pass: tells `features` which layers are frozen, where their weights are new.
  void follow_frozen();
  [[nodiscard]] int processes() const { return sync->processes(); }
  [[nodiscard]] std::int64_t parameter_count() const;  // tied ones once
  [[nodiscard]] std::uint64_t gradient_bytes() const;  // of one replica
};

// What compose() refuses before it makes anything on a device. layers: of the whole model, in order, of which the first
// ones may be frozen by the plan that runs now.
void check_fits(const Plan& plan, const ComposeOptions& options, const std::vector<nn::Layer*>& layers,
                int frozen_now = 0);

// Makes the communicators that compose() will ask for and that there are not yet: all that the processes do together
// there. Every process calls it.
void connect(const Plan& plan, const ComposeOptions& options);

[[nodiscard]] Composition compose(const Plan& plan, const ComposeOptions& options);

}  // namespace sluice::engine
