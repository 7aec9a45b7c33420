#include "report/tensorboard_sink.h"

#include <array>
#include <optional>

#include "core/concat.h"
#include "report/metrics_writer.h"

namespace sluice::report {

using nlohmann::ordered_json;

namespace {

constexpr double kMiB = 1 << 20;

std::optional<double> mean_in(const ordered_json& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end() || !found->is_array() || found->empty()) return std::nullopt;
  double sum = 0;
  for (const auto& number : *found) {
    if (!number.is_number()) return std::nullopt;
    sum += number.get<double>();
  }
  return sum / static_cast<double>(found->size());
}

}  // namespace

TensorBoardSink::TensorBoardSink(const std::filesystem::path& folder, const std::filesystem::path& metrics,
                                 std::optional<std::int64_t> first_step, std::span<const Setting> settings,
                                 Scores scores)
    : events_(folder, first_step), scores_(std::move(scores)) {
  if (!settings.empty()) events_.hparams(settings);
  // A repeated evaluation belongs to a step that is not repeated, but TensorBoard drops both, so the step's scalars are
  // written again. The epoch that ends with this step waits for the evaluation and is repeated as well.
  const auto last = first_step ? last_event(metrics, "step") : std::nullopt;
  if (last && last->value("step", std::int64_t{-1}) == *first_step) scalars_of_step(*first_step, *last);
}

void TensorBoardSink::plan(const RunFacts&, const ordered_json& description, std::int64_t steps_done) {
  events_.text(steps_done, "plan", concat("```json\n", description.dump(2), "\n```"));
}

void TensorBoardSink::scalars_of_step(std::int64_t step, const ordered_json& fields) {
  constexpr std::array<std::pair<const char*, const char*>, 6> kTags{{{"loss", "Loss/train"},
                                                                      {"lr", "lr"},
                                                                      {"gradient_norm", "gradient_norm"},
                                                                      {"noise_scale", "noise_scale"},
                                                                      {"samples_per_s", "samples_per_s"},
                                                                      {"step_ms", "step_ms"}}};
  for (const auto& [name, tag] : kTags) {
    const auto field = fields.find(name);
    if (field != fields.end() && field->is_number()) events_.scalar(step, tag, field->get<double>());
  }
  scores_in(fields, step, "train");
  if (const auto busy = mean_in(fields, "device_busy")) events_.scalar(step, "device_busy", *busy);
}

void TensorBoardSink::summary(const SummaryReport& report) {
  const nlohmann::ordered_json goodput = report.goodput.json();
  if (goodput.empty()) return;
  events_.scalar(report.steps_done, "goodput", goodput.at("goodput").get<double>());
  for (const auto& [cause, seconds] : goodput.at("lost_s").items())
    events_.scalar(report.steps_done, concat("lost_s/", cause), seconds.get<double>());
}

void TensorBoardSink::scores_in(const ordered_json& fields, std::int64_t step, const char* what) {
  for (const Score& score : scores_) {
    const auto field = fields.find(score.name);
    if (field != fields.end() && field->is_number())
      events_.scalar(step, concat(score.tag, "/", what), field->get<double>());
  }
}

void TensorBoardSink::scalars_of_epoch(const ordered_json& fields) {
  constexpr std::array<std::pair<const char*, const char*>, 2> kTags{
      {{"epoch", "epoch"}, {"loss", "Loss/train_epoch"}}};
  const auto step = fields.at("step").get<std::int64_t>();
  for (const auto& [name, tag] : kTags) {
    const auto field = fields.find(name);
    if (field != fields.end() && field->is_number()) events_.scalar(step, tag, field->get<double>());
  }
  scores_in(fields, step, "train_epoch");
  const auto memory = fields.find("peak_memory_bytes");  // missing in records of earlier versions
  if (memory == fields.end()) return;
  for (const auto& [what, bytes] : memory->items())
    events_.scalar(step, concat("peak_memory_mib/", what), bytes.get<double>() / kMiB);
}

void TensorBoardSink::eval(const EvalRecord& record, const ordered_json&, bool) {
  const auto scalars_of = [&](const ScoreSums& sums, const char* what) {
    events_.scalar(record.step, concat("Loss/", what), sums.loss());
    for (const Score& score : scores_) {
      if (score.is_known(sums)) events_.scalar(record.step, concat(score.tag, "/", what), score.of(sums));
    }
  };
  scalars_of(record.scores, "val");
  if (record.averaged) scalars_of(*record.averaged, "val_ema");
}

}  // namespace sluice::report
