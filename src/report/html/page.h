// page: one self-contained HTML file with style, scripts, Chart.js and the data as one JSON object (run_page.h). Names
// and messages of a run cannot inject code: the content security policy forbids any other script or resource, and the
// scripts set text as text.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice::report {

inline constexpr std::string_view kPageBegin = "<!DOCTYPE html>";

// JSON for <script type="application/json">: without '<', '>', '&' and JavaScript line separators; invalid UTF-8 is
// replaced.
[[nodiscard]] std::string script_json(const nlohmann::ordered_json& data);

[[nodiscard]] std::string html_text(std::string_view text);

// Replaces each {{NAME}} in `template_text`; inserted text is not scanned again.
[[nodiscard]] std::string filled(std::string_view template_text,
                                 const std::map<std::string, std::string, std::less<>>& values);

struct PageOptions {
  std::string title;
  int refresh_s = 0;  // 0: the page does not reload itself
};

[[nodiscard]] std::string page(const nlohmann::ordered_json& data, const PageOptions& options);

}  // namespace sluice::report
