#include "report/csv_sink.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <span>
#include <utility>

#include "report/metrics_writer.h"

namespace sluice::report {
namespace {

constexpr const char *kScores = "scores", *kAveragedScores = "ema_scores";  // stand for those of the task
constexpr std::array kStepColumns{"step",
                                  "epoch",
                                  "batch",
                                  "batches",
                                  "loss",
                                  "samples",
                                  "lr",
                                  kScores,
                                  "gradient_norm",
                                  "step_ms",
                                  "load_ms",
                                  "forward_ms",
                                  "backward_ms",
                                  "transfer_ms",
                                  "allreduce_ms",
                                  "optimizer_ms",
                                  "idle_ms",
                                  "skew_ms",
                                  "bubble_fill_ms",
                                  "bubble_steady_ms",
                                  "bubble_drain_ms",
                                  "allreduce_exposed_ms",
                                  "allreduce_hidden_ms",
                                  "slowest_stage",
                                  "samples_per_s",
                                  "syncs_per_s",
                                  "sync_bytes",
                                  "net_bytes_per_s",
                                  "flops_per_s",
                                  "mfu",
                                  "stages",
                                  "replicas",
                                  "frozen_layers",
                                  "noise_scale",
                                  "noise_scale_error"};
// "perplexity" is empty for a task without it.
constexpr std::array kEvalColumns{"step",    "epoch",    "loss",          "perplexity", kScores,
                                  "samples", "ema_loss", kAveragedScores, "eval_s"};
constexpr std::array kPushColumns{"step",      "worker", "life",   "sequence", "version", "staleness", "examples",
                                  "compute_s", "idle_s", "send_s", "sleep_s",  "bytes",   "virtual_s"};

CsvColumns with_scores(std::span<const char* const> names, const Scores& scores) {
  CsvColumns columns;
  for (const char* name : names) {
    if (name != kScores && name != kAveragedScores) {
      columns.emplace_back(name);
      continue;
    }
    for (const Score& score : scores) {
      if (score.needs > 0) columns.push_back((name == kAveragedScores ? "ema_" : "") + score.name);
    }
  }
  return columns;
}

std::string cell_of(const nlohmann::ordered_json& value) {
  if (!value.is_number()) return {};
  const double number = value.get<double>();
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return value.dump();
}

// Bytes up to the row of the last `event` in `metrics`; 0 if it has none, or if the heading differs.
std::uint64_t bytes_to_keep(const std::filesystem::path& file, const std::filesystem::path& metrics, const char* event,
                            const std::string& heading) {
  const auto last = last_event(metrics, event);
  if (!last) return 0;
  const std::int64_t last_step = last->value("step", std::int64_t{0});
  std::ifstream in(file, std::ios::binary);
  std::string line;
  if (!std::getline(in, line) || line + '\n' != heading) return 0;
  std::uint64_t bytes = line.size() + 1;
  while (std::getline(in, line) && !in.eof()) {  // skips an incomplete last row
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
    if (error != std::errc() || *end != ',' || step > last_step) break;
    bytes += line.size() + 1;
  }
  return bytes;
}

}  // namespace

CsvColumns step_columns(const Scores& scores) { return with_scores(kStepColumns, scores); }
CsvColumns push_columns() { return {kPushColumns.begin(), kPushColumns.end()}; }
CsvColumns eval_columns(const Scores& scores) { return with_scores(kEvalColumns, scores); }

std::string csv_heading(const CsvColumns& columns) {
  std::string text;
  for (const std::string& column : columns) {
    if (!text.empty()) text += ',';
    text += column;
  }
  text += '\n';
  return text;
}

std::string csv_row(const CsvColumns& columns, const nlohmann::ordered_json& fields) {
  std::string text;
  for (const std::string& column : columns) {
    if (&column != &columns.front()) text += ',';
    const auto field = fields.find(column);
    if (field != fields.end()) text += cell_of(*field);
  }
  text += '\n';
  return text;
}

CsvTable::CsvTable(const std::filesystem::path& file, const std::filesystem::path& metrics, CsvColumns columns,
                   const char* event)
    : columns_(std::move(columns)), file_(file, bytes_to_keep(file, metrics, event, csv_heading(columns_))) {
  if (file_.bytes() == 0) (void)file_.append(csv_heading(columns_));
}

CsvSink::CsvSink(const std::filesystem::path& steps, std::filesystem::path metrics, const Scores& scores)
    : metrics_(std::move(metrics)),
      of_evaluations_(eval_columns(scores)),
      steps_(steps, metrics_, step_columns(scores)) {
  // Opens an existing evaluations.csv at once, to remove rows that will be repeated.
  if (std::filesystem::exists(evaluations_file())) open_evaluations();
}

std::filesystem::path CsvSink::evaluations_file() const { return metrics_.parent_path() / "evaluations.csv"; }

void CsvSink::open_evaluations() { evaluations_.emplace(evaluations_file(), metrics_, of_evaluations_, "eval"); }

void CsvSink::eval(const EvalRecord&, const nlohmann::ordered_json& fields, bool) {
  if (!evaluations_) open_evaluations();
  evaluations_->add(fields);
}

void CsvSink::event(const std::string& name, const nlohmann::ordered_json& fields) {
  if (name != "push") return;
  if (!pushes_) pushes_.emplace(metrics_.parent_path() / "pushes.csv", metrics_, push_columns());
  pushes_->add(fields);
}

void CsvSink::sync() {
  steps_.sync();
  if (pushes_) pushes_->sync();
  if (evaluations_) evaluations_->sync();
}

}  // namespace sluice::report
