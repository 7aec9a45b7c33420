#include "app/commands/report_html.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>

#include "app/commands/report_runs.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "report/html/page.h"
#include "report/html/run_page.h"
#include "storage/files.h"
#include "storage/folder_lock.h"
#include "train/setup/stop_signal.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kStandardOutput = "-";
constexpr int kRefreshSeconds = 5;
constexpr std::chrono::minutes kIdleTimeout{10};  // for a run on another machine, which may have been killed

struct Pages {
  std::vector<report::PageRun> runs;
  report::PageNotes notes;
};

Pages read_pages(const std::vector<fs::path>& run_dirs) {
  std::vector<report::History> histories;
  ReportRuns read = read_runs(run_dirs, [&histories](const fs::path& dir) {
    report::PageRun run = report::read_page_run(dir);
    histories.push_back(std::move(run.history));
    return std::move(run.report);
  });
  Pages pages{.runs = {}, .notes = {.left_out = std::move(read.left_out)}};
  for (std::size_t i = 0; i < histories.size(); ++i)
    pages.runs.push_back({.report = std::move(read.runs[i]), .history = std::move(histories[i])});
  return pages;
}

void write_page(const std::string& file, Pages& pages, int refresh_s) {
  pages.notes.refresh_s = refresh_s;
  const std::string text = report::page(report::page_data(pages.runs, pages.notes),
                                        {.title = report::page_title(pages.runs), .refresh_s = refresh_s});
  if (file == kStandardOutput) {
    print_out(text);
  } else {
    storage::write_text_atomically(file, text);
  }
}

std::vector<fs::path> unfinished(const Pages& pages) {
  std::vector<fs::path> dirs;
  for (const report::PageRun& run : pages.runs) {
    if (run.report.log.outcome() == "unfinished") dirs.push_back(run.report.log.dir);
  }
  return dirs;
}

std::vector<std::uintmax_t> sizes_of(const std::vector<fs::path>& run_dirs) {
  std::vector<std::uintmax_t> sizes;
  for (const fs::path& dir : run_dirs) {
    std::error_code error;
    const auto bytes = fs::file_size(dir / "metrics.jsonl", error);
    sizes.push_back(error ? 0 : bytes);
  }
  return sizes;
}

void wait(Clock::time_point until) {
  while (Clock::now() < until && !train::StopSignal::requested())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

class Watch {
 public:
  Watch(std::string file, std::vector<fs::path> run_dirs) : file_(std::move(file)), run_dirs_(std::move(run_dirs)) {}

  // Returns the reason for the end as text. The last page does not reload itself.
  std::string run() {
    std::optional<Pages> pages;
    while (true) {
      const auto begun = Clock::now();
      sizes_ = sizes_of(run_dirs_);
      try {
        pages = read_pages(run_dirs_);
      } catch (const Error& error) {
        if (!pages) throw;
        write_page(file_, *pages, 0);
        return concat("no run is left to watch: ", error.what());
      }
      const std::string ending = why_it_ends(*pages);
      write_page(file_, *pages, ending.empty() ? kRefreshSeconds : 0);
      if (!ending.empty()) return ending;
      // Updates less often if a page takes long to create.
      const auto took = Clock::now() - begun;
      wait(Clock::now() + std::max<Clock::duration>(std::chrono::seconds(kRefreshSeconds) - took, 2 * took));
      wait_for_change(unfinished(*pages));
    }
  }

 private:
  std::string why_it_ends(const Pages& pages) const {
    if (unfinished(pages).empty()) return run_dirs_.size() == 1 ? "the run has ended" : "all runs have ended";
    if (train::StopSignal::requested()) return train::StopSignal::name();
    if (is_killed_) return "the process of the run is gone";
    if (is_silent_) return concat("nothing was recorded for ", kIdleTimeout.count(), " minutes");
    return "";
  }

  // Also returns if no further change can come: a process that ended writes nothing more.
  void wait_for_change(const std::vector<fs::path>& running) {
    const auto end = Clock::now() + kIdleTimeout;
    is_killed_ = std::ranges::all_of(running, storage::owner_is_gone);
    while (sizes_of(run_dirs_) == sizes_ && !is_killed_ && !train::StopSignal::requested() && Clock::now() < end) {
      wait(std::min(end, Clock::now() + std::chrono::seconds(1)));
      is_killed_ = std::ranges::all_of(running, storage::owner_is_gone);
    }
    is_silent_ = Clock::now() >= end;
  }

  std::string file_;
  std::vector<fs::path> run_dirs_;
  std::vector<std::uintmax_t> sizes_;
  bool is_killed_ = false;
  bool is_silent_ = false;
};

// True for a trace, TensorBoard events, a user's notes and the like, which must not be replaced.
bool is_another_file(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) == 0) return false;
  std::ifstream in(file, std::ios::binary);
  std::string begin(report::kPageBegin.size(), ' ');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin != report::kPageBegin;
}

}  // namespace

void check_html_output(const HtmlArguments& arguments, const std::vector<fs::path>& run_dirs, bool json) {
  if (arguments.file.empty()) return;
  const bool is_printed = arguments.file == kStandardOutput;
  if (is_printed && json) throw ConfigError("--json and --html - both write to standard output; give --html a file");
  if (arguments.watch && (is_printed || json))
    throw ConfigError("--watch rewrites a file; give --html a file, and remove --json");
  if (is_printed) return;
  std::vector<fs::path> inputs;
  for (const fs::path& dir : run_dirs) {
    for (const char* name : {"metrics.jsonl", "config.toml", "metrics.csv", "log.txt", "profile.json"})
      inputs.push_back(dir / name);
  }
  std::error_code ignored;
  if (fs::is_directory(arguments.file, ignored))
    throw ConfigError("--html ", arguments.file, " is a directory; name a file in it");
  storage::check_output("--html", arguments.file, inputs);
  if (is_another_file(arguments.file))
    throw ConfigError("--html ", arguments.file, " exists and is not a report page; name another file");
}

void write_html(const HtmlArguments& arguments, const std::vector<fs::path>& run_dirs) {
  if (!arguments.watch) {
    Pages pages = read_pages(run_dirs);
    for (const std::string& why : pages.notes.left_out) log_warning("left out: ", why);
    write_page(arguments.file, pages, 0);
    if (arguments.file != kStandardOutput) log_info("wrote ", printable(arguments.file));
    return;
  }
  const train::StopSignal signal(train::StopSignal::Afterwards::kIgnored);
  log_info("writing ", printable(arguments.file), " every ", kRefreshSeconds,
           " s until the run ends; the browser reloads it; Ctrl-C stops");
  const std::string why = Watch(arguments.file, run_dirs).run();
  log_info("wrote ", printable(arguments.file), " for the last time: ", why);
}

}  // namespace sluice::app
