#include "report/csv_sink.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/metrics_writer.h"
#include "support/files.h"
#include "task/task.h"

namespace sluice::report {
namespace {

using nlohmann::ordered_json;

const Scores kScores = task::make_classification()->scores();

ordered_json fields_of(std::int64_t step, double loss = 0.5) { return {{"step", step}, {"epoch", 0}, {"loss", loss}}; }

// A row of these: all other columns are empty.
std::string row(const std::string& first_five) {
  const auto columns = std::ranges::count(csv_heading(step_columns(kScores)), ',') + 1;
  return first_five + std::string(static_cast<std::size_t>(columns - 5), ',') + "\n";
}

void write(CsvSink& sink, const ordered_json& fields) {
  const StepRecord record;
  sink.step({record, {}, fields, nullptr});
}

TEST(CsvSink, ARowHasANumberOrNothingInEachColumn) {
  EXPECT_TRUE(csv_heading(step_columns(kScores)).starts_with("step,epoch,batch,batches,loss,samples,lr,"));
  EXPECT_EQ(csv_row(step_columns(kScores), fields_of(3, 0.25)), row("3,0,,,0.25"));
  EXPECT_EQ(csv_row(step_columns(kScores), fields_of(3, std::nan(""))), row("3,0,,,NaN"));
  EXPECT_EQ(csv_row(step_columns(kScores), fields_of(3, -INFINITY)), row("3,0,,,-inf"));
  EXPECT_EQ(csv_row(step_columns(kScores),
                    {{"step", 3}, {"epoch", nullptr}, {"batch", "x"}, {"loss", 1}, {"net", ordered_json::object()}}),
            row("3,,,,1"));
}

TEST(CsvSink, AResumedRunCutsTheRowsThatComeAgain) {
  const test::TempDir dir;
  const auto file = dir / "metrics.csv", metrics = dir / "metrics.jsonl";
  {
    CsvSink sink(file, metrics, kScores);
    for (const int step : {1, 2, 3}) write(sink, fields_of(step));
  }
  const std::string three = csv_heading(step_columns(kScores)) + row("1,0,,,0.5") + row("2,0,,,0.5") + row("3,0,,,0.5");
  EXPECT_EQ(test::slurp(file), three);
  test::spill(file, three + "4,0,0.");  // torn
  test::spill(metrics, "{\"event\":\"step\",\"step\":1}\n{\"event\":\"step\",\"step\":2}\n");
  {
    CsvSink sink(file, metrics, kScores);
    write(sink, fields_of(3, 0.75));
  }
  EXPECT_EQ(test::slurp(file),
            csv_heading(step_columns(kScores)) + row("1,0,,,0.5") + row("2,0,,,0.5") + row("3,0,,,0.75"));
}

// An evaluation after the step of a checkpoint comes after it, and so again in a run that goes on from there.
TEST(CsvSink, AnEvaluationHasARowOfItsOwnFileOnce) {
  const test::TempDir dir;
  const auto file = dir / "metrics.csv", metrics = dir / "metrics.jsonl", evaluations = dir / "evaluations.csv";
  const auto evaluate = [](CsvSink& sink, std::int64_t step, double top1) {
    sink.eval({}, {{"epoch", 0}, {"step", step}, {"loss", 0.5}, {"top1", top1}, {"samples", 10}, {"eval_s", 2}}, false);
  };
  {
    CsvSink sink(file, metrics, kScores);
    EXPECT_FALSE(std::filesystem::exists(evaluations)) << "none was made";
    for (const int step : {1, 2, 3}) evaluate(sink, step, 50);
  }
  const std::string heading = csv_heading(eval_columns(kScores));
  EXPECT_EQ(heading, "step,epoch,loss,perplexity,top1,top5,samples,ema_loss,ema_top1,ema_top5,eval_s\n");
  EXPECT_EQ(test::slurp(evaluations),
            heading + "1,0,0.5,,50.0,,10,,,,2\n2,0,0.5,,50.0,,10,,,,2\n3,0,0.5,,50.0,,10,,,,2\n");
  // The checkpoint of step 2 was saved before its evaluation.
  test::spill(metrics, "{\"event\":\"eval\",\"step\":1}\n{\"event\":\"step\",\"step\":2}\n");
  { const CsvSink goes_on(file, metrics, kScores); }
  EXPECT_EQ(test::slurp(evaluations), heading + "1,0,0.5,,50.0,,10,,,,2\n");
  {
    CsvSink sink(file, metrics, kScores);
    evaluate(sink, 2, 75);
  }
  EXPECT_EQ(test::slurp(evaluations), heading + "1,0,0.5,,50.0,,10,,,,2\n2,0,0.5,,75.0,,10,,,,2\n");
}

TEST(CsvSink, APushHasARowOfItsOwnFile) {
  const test::TempDir dir;
  const auto push = [](std::int64_t step, int worker) {
    return ordered_json{{"step", step}, {"worker", worker}, {"examples", 8}, {"compute_s", 0.5}};
  };
  const std::string heading = csv_heading(push_columns());
  {
    CsvSink sink(dir / "metrics.csv", dir / "metrics.jsonl", kScores);
    sink.event("checkpoint", {{"step", 1}});
    EXPECT_FALSE(std::filesystem::exists(dir / "pushes.csv")) << "no push, no file";
    for (const int step : {1, 2}) {
      for (const int worker : {0, 1}) sink.event("push", push(step, worker));
      write(sink, fields_of(step));
    }
  }
  EXPECT_TRUE(heading.starts_with("step,worker,life,sequence,version,staleness,examples,compute_s,idle_s,"));
  EXPECT_EQ(test::slurp(dir / "pushes.csv"),
            heading + "1,0,,,,,8,0.5,,,,,\n1,1,,,,,8,0.5,,,,,\n" + "2,0,,,,,8,0.5,,,,,\n2,1,,,,,8,0.5,,,,,\n");
  test::spill(dir / "metrics.jsonl", "{\"event\":\"step\",\"step\":1}\n");
  {
    CsvSink sink(dir / "metrics.csv", dir / "metrics.jsonl", kScores);
    sink.event("push", push(2, 1));
  }
  EXPECT_EQ(test::slurp(dir / "pushes.csv"), heading + "1,0,,,,,8,0.5,,,,,\n1,1,,,,,8,0.5,,,,,\n2,1,,,,,8,0.5,,,,,\n");
}

TEST(CsvSink, AnotherHeadingOrANewRunBeginsAnew) {
  const test::TempDir dir;
  test::spill(dir / "metrics.jsonl", "{\"event\":\"step\",\"step\":7}\n");
  test::spill(dir / "metrics.csv", "step,loss\n1,2\n");
  { const CsvSink sink(dir / "metrics.csv", dir / "metrics.jsonl", kScores); }
  EXPECT_EQ(test::slurp(dir / "metrics.csv"), csv_heading(step_columns(kScores)));
  test::spill(dir / "metrics.csv", csv_heading(step_columns(kScores)) + row("1,0,,,0.5"));
  test::spill(dir / "metrics.jsonl", "");
  { const CsvSink sink(dir / "metrics.csv", dir / "metrics.jsonl", kScores); }
  EXPECT_EQ(test::slurp(dir / "metrics.csv"), csv_heading(step_columns(kScores)));
}

}  // namespace
}  // namespace sluice::report
