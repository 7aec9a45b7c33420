#include "report/worker_files.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "report/record_fields.h"
#include "report/worker_totals.h"
#include "report/worker_writer.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<fs::path> record_files_in(const fs::path& folder, std::vector<std::string>& problems) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".jsonl") files.push_back(entry->path());
  }
  if (error) problems.push_back(concat(printable(folder.string()), " cannot be read: ", error.message()));
  std::ranges::sort(files);
  return files;
}

// Records before the first `start` belong to no worker and are ignored.
void read_into(WorkerFiles& all, const fs::path& file) {
  std::int64_t of_nobody = 0;
  bool has_start = false;
  const LineDamage damage = read_records(file, [&](const Json& line, const std::string& event) {
    if (event == "start") {
      const auto worker = worker_in(line);
      has_start = worker.has_value();
      if (has_start)
        all.starts.push_back({.worker = *worker, .where = text_at(line, "where").value_or(""), .line = line});
    }
    if (!has_start) {
      ++of_nobody;
    } else if (event == "step") {
      ++all.starts.back().pushes;
      all.starts.back().sums.add(line);
    }
  });
  all.damage.unreadable_lines += damage.unreadable_lines + of_nobody;
  all.damage.is_torn |= damage.is_torn;
}

}  // namespace

bool holds_workers(const fs::path& run_dir) {
  std::error_code ignored;
  return fs::is_directory(workers_dir(run_dir), ignored);
}

bool is_of_workers_alone(const fs::path& run_dir) {
  std::error_code ignored;
  return holds_workers(run_dir) && !fs::exists(run_dir / "metrics.jsonl", ignored);
}

WorkerFiles read_worker_files(const fs::path& run_dir) {
  WorkerFiles all{.dir = run_dir};
  for (const fs::path& file : record_files_in(workers_dir(run_dir), all.problems)) {
    try {
      read_into(all, file);
    } catch (const Error& error) {
      all.problems.emplace_back(error.what());
    }
  }
  return all;
}

}  // namespace sluice::report
