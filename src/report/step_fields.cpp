#include "report/step_fields.h"

#include "core/flops.h"
#include "core/host.h"
#include "device/memory.h"
#include "report/console_text.h"
#include "report/worker_writer.h"

namespace sluice::report {

using nlohmann::ordered_json;
using profiler::Part;
using profiler::SlotBreakdown;

std::vector<std::pair<std::string, double>> times_of(const SlotBreakdown& slot) {
  return {{"load_ms", to_ms(slot.load())},
          {"forward_ms", to_ms(slot.forward())},
          {"backward_ms", to_ms(slot.backward())},
          {"transfer_ms", to_ms(slot.transfer())},
          {"allreduce_exposed_ms", to_ms(slot.all_reduce_exposed())},
          {"optimizer_ms", to_ms(slot.optimizer())},
          {"idle_ms", to_ms(slot.idle())},
          {"skew_ms", to_ms(slot[Part::kSkew])},
          {"bubble_fill_ms", to_ms(slot[Part::kFill])},
          {"bubble_steady_ms", to_ms(slot[Part::kSteady])},
          {"bubble_drain_ms", to_ms(slot[Part::kDrain])},
          {"allreduce_ms", to_ms(slot.all_reduce)},
          {"allreduce_hidden_ms", to_ms(slot.all_reduce_hidden())}};
}

namespace {

void add_breakdown(ordered_json& fields, const profiler::StepBreakdown& breakdown) {
  const bool is_known = !breakdown.slots.empty();
  const auto known = [&](const ordered_json& value) { return is_known ? value : ordered_json(nullptr); };
  for (const auto& [name, ms] : times_of(breakdown.mean())) fields[name] = known(ms);
  fields["slowest_stage"] = known(index(breakdown.slowest_device()));
  fields["device_busy"] = known(breakdown.device_busy());
  if (breakdown.dropped > 0) fields["spans_dropped"] = breakdown.dropped;
}

void add_flops(ordered_json& fields, const FlopCount& flops, Nanoseconds duration, double device_s,
               const RunFacts& facts) {
  fields["flops_per_s"] =
      facts.by_pushes ? ordered_json(nullptr) : ordered_json(per_second(all_flops(flops), duration));
  for (int kind = 0; kind < kProductKinds; ++kind) {
    if (flops[kind] > 0)
      fields["flops_per_s_by_kind"][name_of(static_cast<ProductKind>(kind))] = per_second(flops[kind], duration);
  }
  const auto mfu = facts.by_pushes ? std::nullopt : utilisation(flops, device_s, facts);
  fields["mfu"] = mfu ? ordered_json(*mfu) : ordered_json(nullptr);
}

// Adds syncs between replicas or processes; null if workers push instead.
void add_syncs(ordered_json& fields, Nanoseconds duration, const RunFacts& facts) {
  const auto known = [&](const ordered_json& value) { return facts.by_pushes ? ordered_json(nullptr) : value; };
  fields["syncs_per_s"] = known(facts.sync_bytes > 0 ? per_second(1.0, duration) : 0.0);
  fields["sync_bytes"] = known(facts.sync_bytes);
}

void add_counted(ordered_json& fields, const std::optional<ScoreSums>& sums, const RunFacts& facts,
                 const std::string& prefix = {}) {
  if (!sums) return;
  for (const Score& score : facts.scores) {
    if (score.needs > 0 && score.is_known(*sums)) fields[prefix + score.name] = score.of(*sums);
  }
}

void add_scores(ordered_json& fields, const ScoreSums& sums, const RunFacts& facts) {
  fields["loss"] = sums.loss();
  for (const Score& score : facts.scores) {
    if (score.is_known(sums)) fields[score.name] = score.of(sums);
  }
}

void add_noise(ordered_json& fields, const NoiseRecord& noise) {
  fields["noise_trace"] = noise.of_step.trace;
  fields["noise_squared_norm"] = noise.of_step.squared_norm;
  if (noise.mean) {
    fields["noise_scale"] = noise.mean->samples;
    fields["noise_scale_error"] = noise.mean->error;
  }
  fields["noise_ms"] = to_ms(noise.duration);
}

ordered_json noise_summary(const tune::NoiseScale& noise, double cost_percent) {
  return {{"samples", noise.samples},
          {"error", noise.error},
          {"trace", noise.trace},
          {"trace_error", noise.trace_error},
          {"squared_norm", noise.squared_norm},
          {"squared_norm_error", noise.squared_norm_error},
          {"estimates", noise.estimates},
          {"cost_percent", cost_percent}};
}

ordered_json peak_memory_by_kind(const RunFacts& facts) {
  ordered_json devices = ordered_json::object();
  for (const device::Device& device : facts.used_devices) {
    if (device.kind != device::DeviceKind::kCpu || !device::memory_is_counted()) continue;
    const device::MemoryUse use = device::memory_use(device);
    for (const device::MemoryKind kind : device::kMemoryKinds)
      devices[device::to_string(device)][std::string(device::to_word(kind))] = use.by_kind_at_peak[kind];
  }
  return devices;
}

}  // namespace

ordered_json peak_memory(const RunFacts& facts) {
  ordered_json bytes{{"process", peak_process_memory()}};
  for (const device::Device& device : facts.used_devices) {
    if (const auto peak = device::peak_bytes(device)) bytes[device::to_string(device)] = *peak;
  }
  for (const auto& [kind, size] : facts.memory) bytes[kind] = size;
  return bytes;
}

ordered_json step_fields(const StepRecord& record, const profiler::NetworkRates* network, const RunFacts& facts) {
  ordered_json fields{{"step", record.step},       {"epoch", record.epoch},
                      {"batch", record.batch},     {"batches", record.batches},
                      {"loss", record.stats.loss}, {"samples", record.stats.samples},
                      {"lr", record.lr},           {"step_ms", to_ms(record.breakdown.step)}};
  add_counted(fields, record.stats.scores, facts);
  add_breakdown(fields, record.breakdown);
  fields["samples_per_s"] = per_second(static_cast<double>(record.stats.samples), record.breakdown.step);
  add_syncs(fields, record.breakdown.step, facts);
  fields["net_bytes_per_s"] = network != nullptr ? ordered_json(network->total) : ordered_json(nullptr);
  for (const auto& [name, rate] : network != nullptr ? network->interfaces : decltype(network->interfaces){}) {
    if (rate.sent + rate.received == 0) continue;
    fields["net"][name]["sent"] = rate.sent;
    // Counts each loopback byte once, like the total.
    if (name != profiler::kLoopback) fields["net"][name]["received"] = rate.received;
  }
  if (record.stats.skipped) fields["skipped"] = true;
  if (record.stats.gradient_norm) fields["gradient_norm"] = *record.stats.gradient_norm;
  if (record.noise) add_noise(fields, *record.noise);
  add_flops(fields, record.stats.flops, record.breakdown.step, to_s(record.breakdown.step) * facts.all_devices(),
            facts);
  fields["stages"] = facts.plan.devices();
  fields["replicas"] = facts.replicas;
  fields["frozen_layers"] = facts.plan.frozen_layers;
  return fields;
}

ordered_json worker_step_fields(const WorkerPush& push, std::int64_t number, const RunFacts& facts) {
  ordered_json fields{{"step", number},
                      {"version", push.version},
                      {"epoch", push.epoch},
                      {"own_steps", push.steps},
                      {"loss", push.stats.loss},
                      {"samples", push.stats.samples},
                      {"step_ms", to_ms(push.breakdown.step)}};
  if (push.lr) fields["lr"] = *push.lr;
  add_counted(fields, push.stats.scores, facts);
  add_breakdown(fields, push.breakdown);
  fields["wait_ms"] = to_ms(push.waited);
  fields["sleep_ms"] = to_ms(push.stalled);
  fields["samples_per_s"] = per_second(static_cast<double>(push.stats.samples), push.breakdown.step);
  add_flops(fields, push.stats.flops, push.breakdown.step, to_s(push.breakdown.step) * facts.all_devices(), facts);
  return fields;
}

ordered_json epoch_fields(const StepSums& sums, const StepRecord& last, const RunFacts& facts) {
  ordered_json fields{{"epoch", last.epoch}, {"step", last.step}, {"steps", sums.steps}, {"samples", sums.samples}};
  add_scores(fields, sums.all_scores(), facts);
  fields["train_s"] = to_s(sums.duration);
  fields["peak_memory_bytes"] = peak_memory(facts);
  return fields;
}

ordered_json eval_fields(const EvalRecord& record, const RunFacts& facts) {
  ordered_json fields{{"epoch", record.epoch}, {"step", record.step}};
  add_scores(fields, record.scores, facts);
  fields["samples"] = record.scores.targets;
  if (record.averaged) {
    fields["ema_loss"] = record.averaged->loss();
    add_counted(fields, record.averaged, facts, "ema_");
  }
  fields["eval_s"] = record.seconds;
  return fields;
}

ordered_json worker_summary_fields(const RunTotals& totals, const RunFacts& facts) {
  ordered_json fields{{"samples_per_s", totals.samples_per_s()},
                      {"peak_memory_bytes", peak_memory(facts)},
                      {"peak_memory_by_kind", peak_memory_by_kind(facts)}};
  add_flops(fields, totals.flops, totals.duration, totals.device_s, facts);
  fields["breakdown"] = mean_breakdown(totals.slots);
  return fields;
}

ordered_json summary_fields(const RunTotals& totals, const std::vector<tune::Advice>* advice,
                            const std::optional<EvalRecord>& evaluation, const RunFacts& facts) {
  ordered_json fields = worker_summary_fields(totals, facts);
  fields["advice"] = nullptr;
  if (advice != nullptr) {
    fields["advice"] = ordered_json::array();
    for (const tune::Advice& one : *advice) fields["advice"].push_back(one.sentence);
  }
  if (!totals.slots.empty()) {
    fields["evaluation_s"] = to_s(totals.evaluation);
    fields["checkpoints_s"] = to_s(totals.checkpoints);
  }
  if (totals.noise) fields["noise"] = noise_summary(*totals.noise, totals.noise_cost());
  if (evaluation) add_scores(fields, evaluation->scores, facts);
  return fields;
}

}  // namespace sluice::report
