// run_totals: what the steps of this process add up to, for rates, the table at the end and the summary.
// Not here: single steps' records (reporter.h). Values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/recorder.h"
#include "core/step_stats.h"
#include "device/device.h"
#include "profiler/breakdown.h"
#include "report/slot_totals.h"
#include "tune/advice.h"
#include "tune/noise_scale.h"

namespace sluice::report {

// What does not change from step to step while the plan stays.
struct RunFacts {
  Plan plan;
  int replicas = 1;  // over all processes
  int processes = 1;
  std::int64_t total_steps = 0;  // of the whole run
  std::uint64_t sync_bytes = 0;  // that the replicas keep in step; 0: there is one
  // Bytes by kind: parameters, gradients, optimizer. In a reporter the most of any plan so far.
  std::map<std::string, std::uint64_t> memory;
  std::vector<device::Device> devices;         // of this process, each once
  std::set<device::Device> used_devices = {};  // the same, and those of earlier plans; filled in by the reporter
  int data_workers = 0;
  bool chunks_are_measured = false, partition_is_measured = false;
  double peak_flops = 0;        // of one device, per second; 0: unknown
  bool is_text = false;         // a target is a token
  bool has_perplexity = false;  // the loss is the plain cross-entropy of tokens
  bool spans_machines = false;
  bool logs_full_lines = false;  // log.lines
  // A step is an update that pushes of a parameter server's workers have made: what these computed and sent for it is
  // not known here.
  bool by_pushes = false;

  [[nodiscard]] bool is_on_gpu() const { return devices.front().kind == device::DeviceKind::kCuda; }
  [[nodiscard]] int all_devices() const { return static_cast<int>(devices.size()) * processes; }
};

struct RunTotals {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t targets = 0;
  Nanoseconds duration = 0;
  double device_s = 0;  // seconds of all devices of all processes
  FlopCount flops{};
  SlotTotals slots;
  std::uint64_t dropped_spans = 0;
  std::map<int, Nanoseconds> waited_for_rank;   // by the first to be ready, for the last
  double network_bytes = 0;                     // that all interfaces carried in `network_time`
  Nanoseconds network_time = 0;                 // of the steps, as far as it is known
  Nanoseconds evaluation = 0, checkpoints = 0;  // outside of steps
  std::int64_t evaluations_made = 0, checkpoints_made = 0;
  Nanoseconds norms = 0;                  // what taking them for the noise scale took, of `duration`
  std::optional<tune::NoiseScale> noise;  // of the gradients, the newest

  // facts: of the plan that it ran under.
  void add_step(const StepStats& stats, const profiler::StepBreakdown& breakdown,
                std::optional<double> network_bytes_per_s, const RunFacts& facts);
  void add_outside(const std::vector<Span>& spans);

  // Percent of the steps' time that taking norms took.
  [[nodiscard]] double noise_cost() const { return duration > 0 ? 100 * to_s(norms) / to_s(duration) : 0; }
  [[nodiscard]] double seconds_a_step() const { return mean_s(duration, steps); }
  [[nodiscard]] double seconds_an_evaluation() const { return mean_s(evaluation, evaluations_made); }
  [[nodiscard]] double seconds_a_checkpoint() const { return mean_s(checkpoints, checkpoints_made); }
  [[nodiscard]] double samples_per_s() const { return per_second(static_cast<double>(samples), duration); }

 private:
  // 0 if there was none.
  [[nodiscard]] static double mean_s(Nanoseconds all, std::int64_t count) {
    return count > 0 ? to_s(all) / static_cast<double>(count) : 0;
  }
};

// Model FLOPs over what all devices could have done in that time; nothing where their peak is not known.
[[nodiscard]] std::optional<double> utilisation(const FlopCount& flops, double device_s, const RunFacts& facts);

// What the rules of tune/advice.h look at.
[[nodiscard]] tune::AdviceInput advice_input(const RunTotals& totals, const RunFacts& facts);

}  // namespace sluice::report
