#include "engine/divergence.h"

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "engine/state.h"
#include "storage/not_finite.h"

namespace sluice::engine {
namespace {

// The first rank with a bad share, or -1. Every process must call it.
int first_bad_rank(const Composition& composition, bool own_is_bad) {
  comm::ReplicaSync& sync = *composition.sync;
  const at::Tensor bad = at::zeros({sync.processes()}, at::kDouble);
  bad[sync.rank()].fill_(own_is_bad ? 1 : 0);
  sync.sum(bad);
  for (int rank = 0; rank < sync.processes(); ++rank) {
    if (bad[rank].item<double>() > 0) return rank;
  }
  return -1;
}

bool is_double(const Composition& composition) {
  const auto& stage = composition.executor->stage(ReplicaId{0}, StageId{0});
  return stage.parameters().values().scalar_type() == at::kDouble;
}

}  // namespace

std::string not_finite_sample(const pipeline::MicroBatch& batch) {
  for (std::int64_t i = 0; i < batch.samples(); ++i) {
    if (!batch.without_inputs.empty() && batch.without_inputs[i]) continue;  // they were finite when they were read
    for (const auto& [tensors, what] : {std::pair(&batch.inputs, "inputs"), std::pair(&batch.targets, "targets")}) {
      for (const at::Tensor& one : *tensors) {
        const std::string found = one.defined() ? storage::describe_not_finite(one[i]) : std::string();
        if (!found.empty())
          return concat("sample ", batch.sample_ids[i].item<std::int64_t>(), " has ", found, " among its ", what);
      }
    }
  }
  return {};
}

std::string smaller_updates_advice(std::optional<double> lr) {
  return concat("lower train.lr ", lr ? concat("(", *lr, " in this step) ") : "", "or raise train.warmup_steps");
}

void throw_divergence(const Composition& composition, const pipeline::MicroBatch& share, const DivergedStep& at) {
  const std::string where = concat("step ", at.step + 1, ": ", at.what);
  const std::string bad_sample = not_finite_sample(share);
  if (const int rank = first_bad_rank(composition, !bad_sample.empty()); rank >= 0) {
    throw DataError(where, ", because ",
                    bad_sample.empty() ? concat("rank ", rank, " has a sample that is not finite") : bad_sample,
                    "; correct the data or remove that sample");
  }
  // Running statistics are not checked, because this step has already changed them.
  if (const std::string ruined = storage::describe_not_finite(parameter_tensors(composition)); !ruined.empty()) {
    throw DivergedError(
        concat(where, ", because ", ruined, " since the update before; ", smaller_updates_advice(at.lr)));
  }
  if (at.step == 0) {
    throw DivergedError(where,
                        " before any update, so train.lr is not the cause: a number overflows with these "
                        "weights and data; check model.weights",
                        is_double(composition) ? "" : ", or try train.precision = \"fp64\"");
  }
  throw DivergedError(where, "; ", smaller_updates_advice(at.lr));
}

}  // namespace sluice::engine
