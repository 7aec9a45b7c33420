// report_html: `sluice report --html`: the page of runs, written once or, with --watch, as long as they go on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::app {

struct HtmlArguments {
  std::string file;  // empty: no page; "-": standard output
  bool watch = false;
};

// Refuses what cannot be written, before anything is read. Errors: ConfigError, StorageError.
void check_html_output(const HtmlArguments& arguments, const std::vector<std::filesystem::path>& run_dirs, bool json);

// Writes the page of the runs among these. Errors: where none can be read, that of the first; StorageError.
void write_html(const HtmlArguments& arguments, const std::vector<std::filesystem::path>& run_dirs);

}  // namespace sluice::app
