// local_steps: steps of this process's engine. Threads: one. Errors: those of the loader and of TrainStep::run().
#pragma once

#include <functional>
#include <memory>

#include "data/loader.h"
#include "train/trace/step_source.h"

namespace sluice::train {

class LocalSteps final : public StepSource {
 public:
  using Open = std::function<std::unique_ptr<data::Loader>(data::Position)>;

  // reads_features: cached outputs of frozen layers may replace samples.
  LocalSteps(Open open, bool reads_features, data::Position start)
      : open_(std::move(open)), reads_features_(reads_features), data_(open_(start)) {}

  [[nodiscard]] std::optional<RecordedStep> next_step(engine::Engine& engine, std::int64_t steps_done, double lr,
                                                      const engine::StepRequest& request) override;
  [[nodiscard]] bool is_over(engine::Engine& engine, bool is_agreed) const override;
  void plan_changed(const Plan& before, const Plan& now, data::Position next) override;

 private:
  Open open_;
  bool reads_features_;
  std::unique_ptr<data::Loader> data_;
};

}  // namespace sluice::train
