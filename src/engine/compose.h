// compose: builds the objects that run a Plan: the grid of stages on their devices, the executor, the sync between
// replicas and an optimizer per stage. tune/make_plan.h chooses plans.
// Errors: ConfigError if the plan does not fit the model or the devices; OutOfMemoryError if a device's limit is too
// small for its parameters, gradients and optimizer state.
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
  std::function<pipeline::LayerList()> make_layers;  // makes new layers; called once per replica
  std::vector<device::Device> devices;               // plan.replicas x plan.devices(), replica by replica
  int cpu_threads = 1;
  std::chrono::milliseconds step_timeout{0};  // as in pipeline::ExecutorOptions
  bool record_spans = true;
  nn::Numerics numerics = {};  // of frozen layers
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool sends_bf16 = false;  // gradients between processes: as in ddp::ReducerOptions
  optim::OptimizerOptions optimizer;
  GroupOptions groups;
  std::shared_ptr<Communicators> communicators = nullptr;  // with the run's other processes; null: there are none
  std::uint64_t memory_limit = 0;                          // bytes of tensors on each device; 0: no limit
  pipeline::ListedSettings listed = {};                    // for the message of a limit that is too small
  std::shared_ptr<pipeline::DeviceThreads> threads = nullptr;
  std::shared_ptr<Recorder> recorder = nullptr;
  std::shared_ptr<pipeline::PassLimits> limits = nullptr;
  SyncFactory make_sync = engine::make_sync;
  std::shared_ptr<pipeline::FeatureSource> features = nullptr;

  [[nodiscard]] bool has_peers() const { return communicators && communicators->has_peers(); }
};

struct Composition {
  Plan plan;
  std::unique_ptr<pipeline::Executor> executor;
  std::shared_ptr<comm::ReplicaSync> sync;
  // [device]; empty without synchronised batch-norm.
  std::vector<std::shared_ptr<comm::Communicator>> statistics_communicators;
  // [stage]: for replica 0's trained values and gradients, without copies of tied parameters.
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers;
  // Optimizer state of frozen parameters by checkpoint name, kept on the host for when they are trained again.
  std::map<std::string, at::Tensor> frozen_optimizer;
  std::map<std::string, std::int64_t> frozen_updates;
  std::vector<TiedParameter> tied;
  std::shared_ptr<pipeline::FeatureSource> features;
  bool has_new_weights = true;  // `features` does not know the current frozen weights

  void follow_frozen();
  [[nodiscard]] int processes() const { return sync->processes(); }
  [[nodiscard]] std::int64_t parameter_count() const;  // counts a tied parameter once
  [[nodiscard]] std::int64_t trained_count() const;    // of them, without frozen parameters
  [[nodiscard]] std::uint64_t gradient_bytes() const;  // of one replica
};

// The checks of compose() that come before any allocation on a device. layers: all layers of the model, in order; the
// current plan may have frozen the first ones.
void check_fits(const Plan& plan, const ComposeOptions& options, const std::vector<nn::Layer*>& layers,
                int frozen_now = 0);

// Makes the communicators that compose() needs and that do not exist yet. Every process must call it. compose() then
// needs no other exchange between processes.
void connect(const Plan& plan, const ComposeOptions& options);

[[nodiscard]] Composition compose(const Plan& plan, const ComposeOptions& options);

}  // namespace sluice::engine
