#include "train/same_start.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <xxhash.h>

#include "comm/compare.h"
#include "core/concat.h"
#include "core/error.h"
#include "train/machine_fit.h"
#include "train/state.h"

namespace sluice::train {
namespace {

// Keys, or beginnings of keys, that may differ between processes: how each does its part, and what rank 0 alone does.
constexpr std::array kOwnKeys{"device.",
                              "data.path",
                              "data.workers",
                              "data.prefetch",
                              "model.weights",
                              "pipeline.cost_cache",
                              "checkpoint.",
                              "profile.peak_tflops",
                              "train.step_timeout_s",
                              "log.",
                              "replicas.connect_timeout_s",
                              "replicas.hang_timeout_s"};

bool may_differ(const std::string& key) {
  return std::ranges::any_of(kOwnKeys, [&](const char* own) { return key.starts_with(own); });
}

std::int64_t as_number(std::uint64_t hash) {
  std::int64_t number = 0;
  std::memcpy(&number, &hash, sizeof number);
  return number;
}

std::int64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.cpu().contiguous();
  return as_number(XXH3_64bits(bytes.const_data_ptr(), bytes.nbytes()));
}

// The first half of a digest.
std::int64_t as_number(const SplitIdentity& split) {
  return as_number(std::uint64_t{std::stoull(split.digest.substr(0, 16), nullptr, 16)});
}

std::int64_t count_gpus(const Setup& setup) {
  return std::ranges::count(setup.devices, device::DeviceKind::kCuda, &device::Device::kind);
}

void check_same_setup(const comm::Communicator& communicator, const Setup& setup) {
  const std::array names{"number of training samples", "number of test samples", "training samples", "test samples"};
  const auto difference =
      comm::find_difference(communicator, {count_gpus(setup), setup.data.train.samples, setup.data.test.samples,
                                           as_number(setup.data.train), as_number(setup.data.test)});
  if (!difference) return;
  if (difference->position == 0) {
    throw ConfigError(concat(difference->describe_ranks(), " would train on other devices (GPUs, CPUs) than rank 0; ",
                             "set device.list so that all take the same kind"));
  }
  throw DataError(concat("the ", names.at(difference->position - 1), " of data set ", setup.train_set->info().name,
                         " in ", difference->describe_ranks(), " ",
                         difference->position < 3 ? "is not that" : "are not those",
                         " of rank 0; give every rank the same files (data.path)"));
}

// Everything that has to be equal, with names for messages. Views on CPU devices.
TensorMap state_of(const Composition& composition) {
  TensorMap tensors = model_tensors(composition);
  tensors.merge(optimizer_tensors(composition));
  return tensors;
}

}  // namespace

comm::Agreement agreement_of(const config::Config& config, const std::string& version) {
  comm::Agreement agreement{{"the version of Sluice", version}};
  for (const auto& [key, value] : config::values(config)) {
    if (!may_differ(key)) agreement[key] = value;
  }
  return agreement;
}

void settle_together(const Peers& peers, Setup& setup) {
  settle_place(setup, peers.place());
  refuse_too_many_threads(setup);
  refuse_too_large_batch(setup);
  warn_of_oddities(setup);
  identify_data(setup);
  if (!peers.is_alone()) check_same_setup(peers.communicator(), setup);
}

void hand_out_state(const comm::Communicator& communicator, Composition& composition) {
  const at::NoGradGuard no_grad;
  TensorMap model = model_tensors(composition), optimizer = optimizer_tensors(composition);
  for (TensorMap* tensors : {&model, &optimizer}) {
    for (auto& [name, tensor] : *tensors) {
      tensor = tensor.contiguous();
      communicator.broadcast(tensor, /*root=*/0);
    }
  }
  const at::Tensor steps = at::full({1}, composition.optimizers.front()->steps(), at::kLong);
  communicator.broadcast(steps, /*root=*/0);
  if (communicator.rank() != 0) {
    load_model(composition, model, "rank 0");
    load_optimizer(composition, optimizer, steps.item<std::int64_t>(), "rank 0");
  }
  check_same_state(communicator, composition, "at the start");
}

void check_same_state(const comm::Communicator& communicator, const Composition& composition, const std::string& when) {
  const TensorMap tensors = state_of(composition);
  std::vector<std::string> names;
  std::vector<std::int64_t> hashes;
  for (const auto& [name, tensor] : tensors) {
    names.push_back("tensor " + name);
    hashes.push_back(hash_of(tensor));
  }
  for (std::size_t stage = 0; stage < composition.optimizers.size(); ++stage) {
    names.push_back(concat("the number of optimizer steps of stage ", stage));
    hashes.push_back(composition.optimizers[stage]->steps());
  }
  const auto difference = comm::find_difference(communicator, hashes);
  if (!difference) return;
  throw PeerError(concat(names[difference->position], " of ", difference->describe_ranks(), " is not that of rank 0 ",
                         when, ": memory, a disk or the network has changed it; start again from the last checkpoint"));
}

}  // namespace sluice::train
