// run_totals: sums over the steps of this process, for rates, the final table and the summary.
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

// Facts that are constant under one plan.
struct RunFacts {
  Plan plan;
  int replicas = 1;  // over all processes
  int processes = 1;
  std::int64_t total_steps = 0;
  std::uint64_t sync_bytes = 0;  // bytes synchronized between replicas; 0 for one replica
  // Bytes by kind: parameters, gradients, optimizer. A reporter keeps the maximum over its plans.
  std::map<std::string, std::uint64_t> memory;
  std::vector<device::Device> devices;         // devices of this process, each once
  std::set<device::Device> used_devices = {};  // includes devices of earlier plans; set by the reporter
  int data_workers = 0;
  bool chunks_are_measured = false, partition_is_measured = false;
  double peak_flops = 0;  // of one device, per second; 0: unknown
  bool is_text = false;   // targets are tokens
  Scores scores = {};     // of the task
  bool spans_machines = false;
  bool logs_full_lines = false;
  // True if a step is a parameter-server update: this process then does not measure the workers' compute and traffic.
  bool by_pushes = false;
  tune::AdviceCosts costs = {};  // for the advice

  [[nodiscard]] bool is_on_gpu() const { return devices.front().kind == device::DeviceKind::kCuda; }
  [[nodiscard]] int all_devices() const { return static_cast<int>(devices.size()) * processes; }
};

struct RunTotals {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t targets = 0;
  Nanoseconds duration = 0;
  double device_s = 0;  // seconds summed over all devices and processes
  FlopCount flops{};
  SlotTotals slots;
  std::uint64_t dropped_spans = 0;
  std::map<int, Nanoseconds> waited_for_rank;  // the first ready process's wait, by rank of the last
  double network_bytes = 0;
  Nanoseconds network_time = 0;                 // time of steps with a network measurement
  Nanoseconds evaluation = 0, checkpoints = 0;  // outside of steps
  std::int64_t evaluations_made = 0, checkpoints_made = 0;
  Nanoseconds norms = 0;  // part of `duration` for the gradient norms of the noise scale
  std::optional<tune::NoiseScale> noise;

  void add_step(const StepStats& stats, const profiler::StepBreakdown& breakdown,
                std::optional<double> network_bytes_per_s, const RunFacts& facts);
  void add_outside(const std::vector<Span>& spans);

  [[nodiscard]] double noise_cost() const { return duration > 0 ? 100 * to_s(norms) / to_s(duration) : 0; }
  [[nodiscard]] double seconds_a_step() const { return mean_s(duration, steps); }
  [[nodiscard]] double seconds_an_evaluation() const { return mean_s(evaluation, evaluations_made); }
  [[nodiscard]] double seconds_a_checkpoint() const { return mean_s(checkpoints, checkpoints_made); }
  [[nodiscard]] double samples_per_s() const { return per_second(static_cast<double>(samples), duration); }

 private:
  [[nodiscard]] static double mean_s(Nanoseconds all, std::int64_t count) {
    return count > 0 ? to_s(all) / static_cast<double>(count) : 0;
  }
};

// Model FLOPs divided by the peak FLOPs of all devices in that time; nothing if the peak is unknown.
[[nodiscard]] std::optional<double> utilisation(const FlopCount& flops, double device_s, const RunFacts& facts);

[[nodiscard]] tune::AdviceInput advice_input(const RunTotals& totals, const RunFacts& facts);

}  // namespace sluice::report
