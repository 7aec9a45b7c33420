#include "engine/tied_parameters.h"

#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"

namespace sluice::engine {

using pipeline::FlatParameters;
using pipeline::ParameterEntry;
using pipeline::Stage;

std::vector<TiedParameter> find_tied_parameters(const pipeline::Executor& executor) {
  std::map<std::string, std::pair<StageId, ParameterEntry>> owners;
  std::vector<std::pair<StageId, ParameterEntry>> copies;
  for (int s = 0; s < executor.stages(); ++s) {
    for (const ParameterEntry& entry : executor.stage(ReplicaId{0}, StageId{s}).parameters().entries()) {
      if (entry.tied_to.empty()) owners.insert({entry.name, {StageId{s}, entry}});
      if (!entry.tied_to.empty()) copies.emplace_back(StageId{s}, entry);
    }
  }
  std::vector<TiedParameter> tied;
  for (const auto& [stage, copy] : copies) {
    const auto owner = owners.find(copy.tied_to);
    check(owner != owners.end(),
          concat("parameter ", copy.tied_to, ", to which ", copy.name, " is tied, in the model"));
    check(owner->second.second.sizes == copy.sizes && owner->second.second.strides == copy.strides,
          concat("the shape of ", copy.tied_to, " for ", copy.name, ", which is tied to it"));
    check(owner->second.second.is_trained == copy.is_trained,
          concat(copy.name, " and ", copy.tied_to, ", to which it is tied, are trained both or not at all"));
    tied.push_back({owner->second.first, stage, owner->second.second, copy});
  }
  return tied;
}

namespace {

// Work of a stage's thread: `target` takes from `source`.
struct Move {
  StageId stage;
  at::Tensor target, source;
};

void run_moves(pipeline::Executor& executor, Phase phase, const std::vector<Move>& moves,
               void (*take)(const at::Tensor& target, const at::Tensor& source)) {
  if (moves.empty()) return;
  executor.for_each_stage(phase, [moves, take](ReplicaId replica, StageId stage, Stage&) {
    const at::NoGradGuard no_grad;
    for (const Move& move : moves) {
      if (replica == ReplicaId{0} && stage == move.stage) take(move.target, move.source);
    }
  });
}

// A tied parameter's part of a flat tensor of its stage in replica 0.
using Flat = const at::Tensor& (FlatParameters::*)() const;
at::Tensor part_of(const pipeline::Executor& executor, Flat flat, StageId stage, const ParameterEntry& entry) {
  return FlatParameters::view((executor.stage(ReplicaId{0}, stage).parameters().*flat)(), entry);
}

}  // namespace

void add_tied_gradients(pipeline::Executor& executor, const std::vector<TiedParameter>& tied) {
  std::vector<Move> moves;
  for (const TiedParameter& t : tied) {
    if (!t.owner.is_trained) continue;
    moves.push_back({t.owner_stage, part_of(executor, &FlatParameters::gradients, t.owner_stage, t.owner),
                     part_of(executor, &FlatParameters::gradients, t.copy_stage, t.copy)});
  }
  run_moves(executor, Phase::kAllReduce, moves,
            [](const at::Tensor& target, const at::Tensor& source) { target.add_(source.to(target.device())); });
}

void copy_tied_values(pipeline::Executor& executor, const std::vector<TiedParameter>& tied) {
  std::vector<Move> moves;
  for (const TiedParameter& t : tied) {
    if (!t.owner.is_trained) continue;
    moves.push_back({t.copy_stage, part_of(executor, &FlatParameters::values, t.copy_stage, t.copy),
                     part_of(executor, &FlatParameters::values, t.owner_stage, t.owner)});
  }
  run_moves(executor, Phase::kOptimizer, moves,
            [](const at::Tensor& target, const at::Tensor& source) { target.copy_(source); });
}

}  // namespace sluice::engine
