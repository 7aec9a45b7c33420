#include "train/plan/run_facts.h"

#include <map>
#include <set>

#include "engine/state.h"
#include "train/plan/choose_plan.h"
#include "train/plan/profile_overheads.h"

namespace sluice::train {
namespace {

std::map<std::string, std::uint64_t> memory_by_kind(const engine::Composition& composition) {
  std::map<std::string, std::uint64_t> bytes{{"parameters", 0}, {"gradients", 0}, {"optimizer", 0}};
  std::set<const void*> seen;
  for (int r = 0; r < composition.executor->replicas(); ++r) {
    for (int s = 0; s < composition.executor->stages(); ++s) {
      const auto& parameters = composition.executor->stage(ReplicaId{r}, StageId{s}).parameters();
      if (seen.insert(parameters.values().const_data_ptr()).second) bytes["parameters"] += parameters.values().nbytes();
      bytes["gradients"] += parameters.gradients().nbytes();
    }
  }
  for (const auto& [name, tensor] : engine::optimizer_tensors(composition)) bytes["optimizer"] += tensor.nbytes();
  return bytes;
}

// True if the targets are tokens.
bool is_text(const Setup& setup) {
  if (setup.train_set->info().kind != SampleKind::kTokens) return false;
  const models::TextHead head = models::text_head(setup.model);
  return head == models::TextHead::kLm || head == models::TextHead::kMlm;
}

}  // namespace

report::RunFacts facts_of(const Setup& setup, const engine::Composition& composition) {
  const Plan& plan = composition.plan;
  const engine::DeviceChoice choice = devices_for(setup, plan.devices() * plan.replicas);
  const std::set<device::Device> devices(choice.devices.begin(), choice.devices.end());
  const int replicas = plan.replicas * setup.process.processes;
  return {.plan = plan,
          .replicas = replicas,
          .processes = setup.process.processes,
          .total_steps = setup.total_steps,
          .sync_bytes = replicas > 1 ? static_cast<std::uint64_t>(static_cast<double>(composition.gradient_bytes()) *
                                                                  sent_share(setup.config, setup.process.processes))
                                     : 0,
          .memory = memory_by_kind(composition),
          .devices = {devices.begin(), devices.end()},
          .data_workers = setup.config.data.workers,
          .chunks_are_measured = chunks_are_open(setup.config),
          .partition_is_measured = plan_request(setup).cut_is_open(),
          .peak_flops = setup.config.profile.peak_tflops * 1e12,
          .is_text = is_text(setup),
          .scores = setup.task->scores(),
          .spans_machines = setup.process.spans_machines,
          .logs_full_lines = setup.config.log.lines == "full"};
}

}  // namespace sluice::train
