#include "report/html/run_page.h"

#include <algorithm>
#include <map>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "report/html/gantt.h"
#include "report/html/predictions.h"
#include "report/html/process_times.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string last_part(const fs::path& dir) {
  const fs::path clean = fs::absolute(dir).lexically_normal();
  return (clean.has_filename() ? clean.filename() : clean.parent_path().filename()).string();
}

std::vector<std::string> short_names(std::span<const PageRun> runs) {
  std::map<std::string, int> uses;
  for (const PageRun& run : runs) ++uses[last_part(run.report.log.dir)];
  std::vector<std::string> names;
  for (const PageRun& run : runs) {
    const std::string name = last_part(run.report.log.dir);
    names.push_back(uses[name] == 1 && !name.empty() ? name : run.report.log.dir.string());
  }
  return names;
}

// Notes which numbers cover only a part of the run or of the devices.
void add_scope(Json& notes, const RunLog& log) {
  if (log.resumed_at && !log.summary.empty())
    notes.push_back(concat("the run was resumed at step ", *log.resumed_at, ": times of a step, peak memory, advice, ",
                           "and times of evaluations and checkpoints cover only the steps since then"));
  const std::int64_t processes = count_at(log.plan, "processes", 1'000'000).value_or(1);
  if (processes > 1)
    notes.push_back(concat("of ", processes, " processes: loss, rates and wall time cover all; devices busy, memory ",
                           "and the times over the run are those of rank 0",
                           log.ranks.is_null() ? ", and so are the times of its stages" : ""));
  const std::int64_t every = whole_lines_of(log.dir / "metrics.jsonl");
  if (every > 1)
    notes.push_back(concat("metrics.jsonl is long: loss, accuracy and step time cover all steps; other means, and the ",
                           "times over the run, cover one step in ", every));
}

Json notes_of(const PageRun& run) {
  Json notes = Json::array();
  add_scope(notes, run.report.log);
  for (const std::string& note : record_notes(run.report)) notes.push_back(note);
  return notes;
}

Json page_run(const PageRun& run, const std::string& name) {
  Json one = run.report.json();
  one["name"] = name;
  one["plan"] = run.report.log.plan;
  one["history"] = run.history.json();
  one["times"] = process_times(run.report.log);
  one["memory_by_kind"] = run.report.log.summary.value("peak_memory_by_kind", Json(nullptr));
  one["predictions"] = predictions_of(run.report, run.history.transitions());
  one["gantt"] = gantt_of(run.report.log);
  one["notes"] = notes_of(run);
  return one;
}

}  // namespace

PageRun read_page_run(const fs::path& run_dir) {
  PageRun run;
  run.report = read_report(run_dir, [&](const Json& line, const std::string& event) { run.history.add(line, event); });
  return run;
}

Json page_data(std::span<const PageRun> runs, const PageNotes& notes) {
  const auto names = short_names(runs);
  Json data{{"refresh_s", notes.refresh_s}, {"left_out", notes.left_out}, {"runs", Json::array()}};
  std::optional<double> first;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Json& one = data["runs"].emplace_back(page_run(runs[i], names[i]));
    const auto own = number_at(one, "samples_per_s");
    if (i == 0) first = own;
    one["speedup"] = own && first && *first > 0 ? Json(*own / *first) : Json(nullptr);
  }
  return data;
}

std::string page_title(std::span<const PageRun> runs) {
  const auto names = short_names(runs);
  if (names.size() == 1) return concat(names.front(), " - Sluice report");
  return concat(names.size(), " runs - Sluice report");
}

}  // namespace sluice::report
