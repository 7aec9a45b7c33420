// cut_bound: a lower bound on the predicted time of a step (predict.h) for all cuts that begin with the same stages. It
// is the maximum of:
// - for each device, from its known stages: time before its first forward or gradient, its work, time after its last
//   gradient. Its first gradient waits until a micro-batch has passed all stages;
// - the mean remaining work of the devices with unknown stages;
// - all work of all replicas divided by the cores;
// - the all-reduce of all gradient bytes over one network.
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

  // ends: [first stages], the end layer of each, ascending; may be empty or cover all stages.
  [[nodiscard]] double of(std::span<const int> ends) const;
  // The part of the bound from the last of these stages alone; it grows monotonically with that stage's end.
  [[nodiscard]] double of_last(std::span<const int> ends) const;

 private:
  struct Sums {
    // gradient: the smaller of input and backward
    double forward = 0, input = 0, weight = 0, backward = 0, gradient = 0;
    double work = 0;  // at least, in the whole step
    double slowed = 0;
    double first_forward = 0, first_backward = 0;
    double bytes = 0;
  };
  struct StageTimes {
    double forward = 0, input = 0, weight = 0, backward = 0;
    double first = 0;  // extra time once per step
    double first_backward = 0;
  };
  struct Counts {
    int forward = 0, input = 0, weight = 0, backward = 0;
  };
  struct DeviceFacts {
    std::vector<int> stages;
    int first_stage = 0;
    int first_gradient_stage = 0;
    int last_gradient_stage = 0;
    std::vector<int> forwards_before;  // [own stage]: forwards before the first B or I
    std::vector<int> weights_after;    // [own stage]: W actions after the last one
    bool has_weights_after = false;
  };
  struct Known {
    std::vector<StageTimes> times;
    std::vector<double> to, back;  // [stage], up to the first unknown one: path from the first stage to it, and back
    int layers = 0;
    double rest_to = 0, rest_back = 0;  // path through all remaining layers and the borders between their stages
  };

  void add_layers(std::span<const LayerCost> layers, Recompute recompute, double micro_batch);
  void add_schedule(const pipeline::Schedule& schedule);
  void add_device(const std::vector<pipeline::Action>& actions);
  void divide_rest();
  [[nodiscard]] StageTimes times_of(int begin, int end) const;
  [[nodiscard]] double work_of(int stage, const StageTimes& times) const;
  [[nodiscard]] double gradient_of(int stage, const StageTimes& times) const;
  [[nodiscard]] double hop(int stage, int end) const;
  [[nodiscard]] Known known(std::span<const int> ends) const;
  [[nodiscard]] double way_to(const Known& known, int stage) const;
  [[nodiscard]] double way_back(const Known& known, int stage) const;
  [[nodiscard]] double turn(const Known& known, int stage) const;
  [[nodiscard]] double of_device(const Known& known, const DeviceFacts& device) const;
  [[nodiscard]] double of_rest(const Known& known) const;
  [[nodiscard]] double of_sums(const Known& known) const;
  [[nodiscard]] double of_update() const;

  int layers_ = 0, stages_ = 0, micro_batches_ = 0;
  double frozen_s_ = 0;
  const StepOverheads overheads_;
  double others_ = 0;          // share of the contenders that always work beside a device
  double waiting_ = 1;         // least factor on each action from waiting for cores
  double cores_share_ = 0;     // least share of a replica's work that the machine needs when all cores work
  double least_slowdown_ = 1;  // least memory slowdown of any layer's action
  bool knows_slowdowns_ = true;
  std::vector<Sums> sums_;  // [number of layers before]
  std::vector<double> sent_bytes_;
  std::vector<Counts> counts_;
  std::vector<int> owners_;
  std::vector<DeviceFacts> devices_;
  // [stage][layer]: least work of the busiest of the stages from this one on, if they have the layers from this one on.
  // Empty if devices have several stages.
  std::vector<std::vector<double>> least_busiest_;
};

}  // namespace sluice::tune
