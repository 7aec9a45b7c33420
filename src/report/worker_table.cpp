#include "report/worker_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "report/time_table.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kMeansOfServer{"compute_s", "idle_s", "send_s", "sleep_s"};
constexpr std::array kWorkerEvents{"joined", "left", "failed", "lost"};

std::string count_cell(const Json& object, const char* name) { return cell(number_at(object, name), 0); }

std::int64_t count_or_0(const Json& object, const char* name) { return integer_at(object, name).value_or(0); }

Json sum_of_workers(const Json& workers) {
  Json sum{{"pushes", 0}, {"examples", 0}, {"share", 1.0}};
  for (const char* name : {"pushes", "examples", "joined", "left", "failed", "lost"}) {
    std::int64_t total = 0;
    for (const Json& worker : workers) total += count_or_0(worker, name);
    sum[name] = total;
  }
  const auto average = [&](const char* name) {
    double total = 0, weight = 0;
    for (const Json& worker : workers) {
      const auto mean = number_at(worker, name);
      const auto pushes = static_cast<double>(count_or_0(worker, "pushes"));
      if (mean) total += *mean * pushes;
      if (mean) weight += pushes;
    }
    if (weight > 0) sum[name] = total / weight;
  };
  for (const char* name : kMeansOfServer) average(name);
  average("staleness");
  for (const Json& worker : workers)
    sum["staleness_max"] = std::max(count_or_0(sum, "staleness_max"), count_or_0(worker, "staleness_max"));
  return sum;
}

TextRow row_of_server(const std::string& name, const Json& worker, bool has_events) {
  const auto share = number_at(worker, "share");
  TextRow row{name, count_cell(worker, "pushes"), count_cell(worker, "examples"),
              cell(share ? std::optional(100 * *share) : share, 1)};
  for (const char* mean : kMeansOfServer) row.push_back(cell(number_at(worker, mean), 3));
  row.push_back(cell(number_at(worker, "staleness"), 2));
  row.push_back(count_cell(worker, "staleness_max"));
  for (const char* event : kWorkerEvents) {
    if (has_events) row.push_back(count_cell(worker, event));
  }
  return row;
}

std::string number_of_worker(const Json& worker) { return count_cell(worker, "worker"); }

std::string server_table(const Json& workers, bool is_virtual) {
  const Json all = sum_of_workers(workers);
  const bool has_events =
      std::ranges::any_of(kWorkerEvents, [&](const char* event) { return count_or_0(all, event) > 0; });
  std::vector<TextRow> rows{
      {"worker", "pushes", "examples", "% of all", "compute", "idle", "send", "stall", "staleness", "most"}};
  if (has_events) rows.front().insert(rows.front().end(), kWorkerEvents.begin(), kWorkerEvents.end());
  for (const Json& worker : workers) rows.push_back(row_of_server(number_of_worker(worker), worker, has_events));
  if (workers.size() > 1) rows.push_back(row_of_server("all", all, has_events));
  return concat("workers, from the server's records (means per push in ", is_virtual ? "virtual " : "",
                "seconds; compute: with stalls; staleness: in updates):\n",
                text_table(rows, std::array{Align::kLeft, Align::kRight}));
}

std::string own_name_of(const Json& worker, const Json& own) {
  const std::int64_t starts = count_or_0(own, "starts");
  return concat("worker ", number_of_worker(worker), " (", counted(count_or_0(own, "pushes"), "push"),
                starts > 1 ? concat(", ", counted(starts, "start")) : "", ")");
}

std::string own_table(const Json& workers) {
  std::vector<std::pair<std::string, Numbers>> rows;
  for (const Json& worker : workers) {
    const Json& own = worker.at("own_records");
    if (own.is_object() && count_or_0(own, "pushes") > 0)
      rows.emplace_back(own_name_of(worker, own), own.at("means").get<Numbers>());
  }
  return rows.empty() ? "" : concat("\n", worker_time_table(rows));
}

std::string troubles_text(const Json& workers) {
  std::string text;
  for (const Json& worker : workers) {
    const Json& trouble = worker.at("trouble");
    if (!trouble.is_object()) continue;
    const std::string what = text_at(trouble, "what").value_or("");
    const std::string why = text_at(trouble, "why").value_or("");
    text += concat("\nnote: worker ", number_of_worker(worker), what == "lost" ? " was lost" : " failed",
                   " after step ", count_cell(trouble, "step"), why.empty() ? "" : ": ", why);
  }
  return text;
}

Json or_null_json(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

Json own_json(const OwnRecords& own) {
  return {{"starts", own.starts}, {"pushes", own.pushes}, {"places", own.processes}, {"means", own.sums.means()}};
}

Json trouble_json(const WorkerTotals::Trouble& trouble) {
  return {{"step", trouble.step ? Json(*trouble.step) : Json(nullptr)}, {"what", trouble.what}, {"why", trouble.why}};
}

}  // namespace

OwnRecordsOfAll own_records_of(const WorkersTotals& workers, std::span<const WorkerFiles> files) {
  std::map<std::string, const WorkerStart*> fullest;  // by the start's line; a copy may be older than its original
  for (const WorkerFiles& of_dir : files) {
    for (const WorkerStart& start : of_dir.starts) {
      const auto worker = workers.find(start.worker);
      const std::string process_id = text_at(start.line, "session").value_or("");
      if (worker == workers.end() || !worker->second.has_joined(start.where, process_id)) continue;
      const WorkerStart*& best = fullest[start.line.dump(-1, ' ', false, Json::error_handler_t::replace)];
      if (best == nullptr || best->pushes < start.pushes) best = &start;
    }
  }
  OwnRecordsOfAll all;
  for (const auto& [line, start] : fullest) {
    OwnRecords& own = all[start->worker];
    ++own.starts;
    own.pushes += start->pushes;
    own.processes.insert(start->where);
    own.sums.add(start->sums);
  }
  return all;
}

Json workers_json(const WorkersTotals& workers, const OwnRecordsOfAll& own) {
  std::int64_t examples = 0;
  for (const auto& [number, worker] : workers) examples += worker.examples;
  Json list = Json::array();
  for (const auto& [number, worker] : workers) {
    Json& one = list.emplace_back(Json{{"worker", number}, {"pushes", worker.pushes}, {"examples", worker.examples}});
    one["share"] =
        examples > 0 ? Json(static_cast<double>(worker.examples) / static_cast<double>(examples)) : Json(nullptr);
    for (const char* name : kMeansOfServer) one[name] = or_null_json(worker.mean(name));
    one["staleness"] = or_null_json(worker.mean("staleness"));
    one["staleness_max"] = worker.most_stale ? Json(*worker.most_stale) : Json(nullptr);
    for (const char* event : kWorkerEvents) one[event] = worker.count(event);
    one["trouble"] = worker.trouble ? trouble_json(*worker.trouble) : Json(nullptr);
    const auto records = own.find(number);
    one["own_records"] = records == own.end() ? Json(nullptr) : own_json(records->second);
  }
  return list;
}

std::string workers_text(const Json& workers, bool is_virtual) {
  return concat(server_table(workers, is_virtual), own_table(workers), troubles_text(workers));
}

}  // namespace sluice::report
