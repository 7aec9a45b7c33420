// cut_bound: a lower bound on the predicted time of a step (predict.h) for all cuts that begin with the same stages.
// Of a device whose stages are known: what comes before its first forward, its work, what comes after its last
// gradient; and its first gradient waits until a micro-batch has been through all stages. Of the others: one of them
// has the mean of the work that is left, or more. All work of all replicas goes through the cores. The sum over
// replicas: all bytes go through one network. Only src/tune includes this. Pure. Units: seconds.
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
  // layers: those that are cut. With kOpen nothing is known to recompute. Requires: a validated training schedule.
  CutBound(std::span<const LayerCost> layers, const pipeline::Schedule& schedule, Recompute recompute,
           double micro_batch, const StepOverheads& overheads, double frozen_s);

  // ends: of the first stages, the layers up to their end, ascending; none, some or all stages.
  [[nodiscard]] double of(std::span<const int> ends) const;
  // Of the last of these stages alone: it only grows with the stage's end.
  [[nodiscard]] double of_last(std::span<const int> ends) const;

 private:
  // Sums over the layers before.
  struct Sums {
    double forward = 0, input = 0, weight = 0, backward = 0, gradient = 0;  // gradient: the cheaper of input, backward
    double work = 0;                                                        // of the whole step, at least
    double slowed = 0;                                                      // forward and backward
    double first_forward = 0, first_backward = 0;
    double bytes = 0;  // of gradients
  };
  struct StageTimes {
    double forward = 0, input = 0, weight = 0, backward = 0;
    double first = 0;  // more, once a step: forward,
    double first_backward = 0;
  };
  struct Counts {
    int forward = 0, input = 0, weight = 0, backward = 0;
  };
  struct DeviceFacts {
    std::vector<int> stages;
    int first_stage = 0;           // of its first action
    int first_gradient_stage = 0;  // of its first B or I
    int last_gradient_stage = 0;
    std::vector<int> forwards_before;  // [own stage]: before the first B or I
    std::vector<int> weights_after;    // [own stage]: after the last one
    bool has_weights_after = false;
  };
  // What the known stages say.
  struct Known {
    std::vector<StageTimes> times;
    std::vector<double> to, back;  // [stage], up to the first unknown one: from the first stage to it, and back
    int layers = 0;
    double rest_to = 0, rest_back = 0;  // through all layers that are left, with the borders between their stages
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
  double others_ = 0;          // the share of the contenders that always work beside a device
  double waiting_ = 1;         // how many times as long each action takes at least, for want of cores
  double cores_share_ = 0;     // of a replica's work, the least that the machine takes of its time when all cores work
  double least_slowdown_ = 1;  // of an action of any layer
  bool knows_slowdowns_ = true;
  std::vector<Sums> sums_;          // [layers before]
  std::vector<double> sent_bytes_;  // [layer]: of a micro-batch
  std::vector<Counts> counts_;      // [stage]
  std::vector<int> owners_;         // [stage]
  std::vector<DeviceFacts> devices_;
  // [stage][layer]: the least work of the most busy one of the stages from this one on, which have the layers from this
  // one on; empty where devices have several stages.
  std::vector<std::vector<double>> least_busiest_;
};

}  // namespace sluice::tune
