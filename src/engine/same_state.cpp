#include "engine/same_state.h"

#include <bit>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <xxhash.h>

#include "comm/compare.h"
#include "core/concat.h"
#include "core/error.h"
#include "engine/state.h"

namespace sluice::engine {
namespace {

std::int64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.cpu().contiguous();
  return std::bit_cast<std::int64_t>(XXH3_64bits(bytes.const_data_ptr(), bytes.nbytes()));
}

}  // namespace

void hand_out_state(Composition& composition) {
  comm::ReplicaSync& sync = *composition.sync;
  const at::NoGradGuard no_grad;
  storage::TensorMap model = model_tensors(composition), optimizer = optimizer_tensors(composition);
  for (storage::TensorMap* tensors : {&model, &optimizer}) {
    for (auto& [name, tensor] : *tensors) {
      tensor = tensor.contiguous();
      sync.take_rank_0s(tensor);
    }
  }
  UpdateCounts updates = update_counts(composition);  // the names are the same in all processes
  std::vector<std::int64_t> counts{composition.optimizers.front()->steps()};
  for (const auto& [parameter, count] : updates) counts.push_back(count);
  const at::Tensor shared = at::tensor(counts, at::kLong);
  sync.take_rank_0s(shared);
  if (sync.rank() != 0) {
    load_model(composition, model, "rank 0");
    const auto* next = shared.const_data_ptr<std::int64_t>();
    const std::int64_t steps = *next++;
    for (auto& [parameter, count] : updates) count = *next++;
    load_optimizer(composition, optimizer, steps, "rank 0", updates);
  }
  check_same_state(composition, "at the start");
}

void check_same_state(const Composition& composition, const std::string& when) {
  storage::TensorMap tensors = model_tensors(composition);
  tensors.merge(optimizer_tensors(composition));
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
  for (const auto& [parameter, count] : update_counts(composition)) {
    names.push_back(concat("the number of updates of ", parameter));
    hashes.push_back(count);
  }
  const auto difference = comm::find_difference(*composition.sync, hashes);
  if (!difference) return;
  throw PeerError(names[difference->position], " of ", difference->describe_ranks(), " differs from rank 0 ", when,
                  ": memory, a disk or the network corrupted it; restart from the last checkpoint");
}

}  // namespace sluice::engine
