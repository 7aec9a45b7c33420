// report_html: `sluice report --html`: the page of runs, written once, or repeatedly with --watch while the runs go on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::app {

struct HtmlArguments {
  std::string file;  // empty: write no page; "-": standard output
  bool watch = false;
};

// Rejects output that cannot be written, before anything is read. Errors: ConfigError, StorageError.
void check_html_output(const HtmlArguments& arguments, const std::vector<std::filesystem::path>& run_dirs, bool json);

// Errors: StorageError; if no run can be read, the error of the first directory.
void write_html(const HtmlArguments& arguments, const std::vector<std::filesystem::path>& run_dirs);

}  // namespace sluice::app
