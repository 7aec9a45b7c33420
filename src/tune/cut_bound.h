// cut_bound: a lower bound of the predicted step time (predict.h) of all cuts that begin with the same stages. The
// first stages are known: their layers are fixed. The other stages are open: only their layers together are fixed.
//
//   bound    = frozen + max(makespan, (5)) + (6)
//   makespan = max((1) of each device, (2), (3), (4))
//
//   (1) device_time       = max(path_to(first stage) + warm-up, gradient_start(stage of the first gradient))
//                           + work - warm-up + max(0, path_back(stage of the last gradient) - drain weights)
//       Work, warm-up (forwards before the device's first gradient) and drain weights (weight gradients after its last
//       gradient) are those of its known stages. An open stage may have drain weights of any length.
//   (2) round_trip        = path_to(end) + path_back(end): one micro-batch passes all stages forward and back
//   (3) open_devices_time = least path_to(first stage) + max(mean work of a device with open stages,
//                           least work of the busiest open stage) + least path_back(stage of the last gradient)
//   (4) cores_time        = work of all devices / devices that the cores can run at once
//   (5) all_reduce_time   = time until the first gradients are complete + all-reduce of all gradient bytes
//   (6) update_time       = mean update of a device
//
//   path_to(stage)        = sum of forward + border over the stages before it
//   path_back(stage)      = sum of gradient + border over the stages before it
//   gradient_start(stage) = round_trip - path_back(stage) - gradient(stage)
//
// Forward, gradient (the shorter of B and I) and border are times of one micro-batch. Open stages count with the least
// possible contention and only with the latency of their borders.
// Internal to src/tune. Pure. Units: seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "core/link_cost.h"
#include "pipeline/schedule/action.h"
#include "tune/partition.h"
#include "tune/predict.h"

namespace sluice::tune {

class CutBound {
 public:
  // layers: those to cut. With Recompute::kOpen no layer counts as recomputed. Requires: a validated training schedule.
  CutBound(std::span<const LayerCost> layers, const pipeline::Schedule& schedule, Recompute recompute,
           double micro_batch, const StepOverheads& overheads, double frozen_s);

  // ends: [known stage], its end layer; ascending; may be empty or cover all stages.
  [[nodiscard]] double of(std::span<const int> ends) const;
  // A bound from the last of these stages alone, which grows monotonically with that stage's end.
  [[nodiscard]] double of_last(std::span<const int> ends) const;

 private:
  // Sums over the first layers, per micro-batch.
  struct LayerSums {
    double forward = 0, input = 0, weight = 0, backward = 0;
    double gradient = 0;                           // the smaller of input and backward
    double slowed = 0;                             // forward and backward, each times its layer's slowdown
    double first_forward = 0, first_backward = 0;  // extra time, once per step
    double work = 0;                               // least time of all micro-batches of a step
    double bytes = 0;                              // of gradients
  };
  struct StageTimes {
    double forward = 0, input = 0, weight = 0, backward = 0;
    double first_forward = 0, first_backward = 0;  // extra time, once per step
  };
  struct ActionCounts {
    int forward = 0, input = 0, weight = 0, backward = 0;
  };
  struct DeviceFacts {
    std::vector<int> stages;
    int first_stage = 0;
    int first_gradient_stage = 0;
    int last_gradient_stage = 0;
    std::vector<int> warm_up_forwards;  // [stage]: forwards before the device's first B or I
    std::vector<int> drain_weights;     // [stage]: weight gradients after the device's last B or I
    bool has_drain_weights = false;
  };
  struct KnownStages {
    std::vector<StageTimes> times;  // [known stage]
    std::vector<double> to, back;   // [known stage, or the first open one]: path_to() and path_back()
    int layers = 0;
    double open_to = 0, open_back = 0;  // paths through the open stages

    [[nodiscard]] int count() const { return static_cast<int>(times.size()); }
    [[nodiscard]] bool has(int stage) const { return stage < count(); }
  };

  void set_contention(std::span<const LayerCost> layers, int devices, Recompute recompute);
  void add_schedule(const pipeline::Schedule& schedule);
  void add_device(const std::vector<pipeline::Action>& actions);
  void add_layers(std::span<const LayerCost> layers, Recompute recompute, double micro_batch);
  void find_busiest_stages();

  [[nodiscard]] KnownStages known_stages(std::span<const int> ends) const;
  [[nodiscard]] StageTimes times_of(int begin, int end) const;
  [[nodiscard]] double work_of(int stage, const StageTimes& times) const;
  [[nodiscard]] double gradient_of(int stage, const StageTimes& times) const;
  [[nodiscard]] double border_of(int stage, std::optional<int> end) const;

  [[nodiscard]] static double path_to(const KnownStages& known, int stage);
  [[nodiscard]] static double path_back(const KnownStages& known, int stage);
  [[nodiscard]] double gradient_start(const KnownStages& known, int stage) const;

  [[nodiscard]] double device_time(const KnownStages& known, const DeviceFacts& device) const;
  [[nodiscard]] static double round_trip(const KnownStages& known);
  [[nodiscard]] double open_devices_time(const KnownStages& known) const;
  [[nodiscard]] double cores_time() const;
  [[nodiscard]] double all_reduce_time(const KnownStages& known) const;
  [[nodiscard]] double update_time() const;

  int layers_ = 0, stages_ = 0, micro_batches_ = 0;
  double frozen_s_ = 0;
  const StepOverheads overheads_;
  double slowdown_share_ = 0;  // share of the contenders that always work beside a device
  double waiting_factor_ = 1;  // least factor on each action from waiting for cores
  double least_factor_ = 1;    // least factor on each action from memory contention and waiting
  double cores_share_ = 0;     // least share of a replica's work that the machine needs when all cores work
  bool knows_slowdowns_ = true;
  std::vector<LayerSums> sums_;       // [number of layers]
  std::vector<double> sent_bytes_;    // [layer]: its output
  std::vector<ActionCounts> counts_;  // [stage]
  std::vector<int> owners_;           // [stage]
  std::vector<DeviceFacts> devices_;
  // [stage][layer]: least work of the busiest of the stages from this one on, if they have the layers from this one on.
  // Empty if devices have several stages.
  std::vector<std::vector<double>> busiest_work_;
};

}  // namespace sluice::tune
