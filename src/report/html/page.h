// page: one HTML file that needs nothing else: style, scripts and Chart.js are in it, and what they draw is one JSON
// object. Its content security policy lets nothing else run or load, and the scripts write text as text, so a name or
// a message of a run cannot become part of the page. Not here: what the object holds (run_page.h). Pure.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice::report {

inline constexpr std::string_view kPageBegin = "<!DOCTYPE html>";

// As text between <script type="application/json"> and its end: no '<', '>' or '&', no line separators of JavaScript,
// bytes that are not UTF-8 replaced.
[[nodiscard]] std::string script_json(const nlohmann::ordered_json& data);

// For the text of an element and the value of an attribute.
[[nodiscard]] std::string html_text(std::string_view text);

// `template_text` with each {{NAME}} replaced once; what is put in is not looked at again.
[[nodiscard]] std::string filled(std::string_view template_text,
                                 const std::map<std::string, std::string, std::less<>>& values);

struct PageOptions {
  std::string title;
  int refresh_s = 0;  // 0: the page does not load itself anew
};

[[nodiscard]] std::string page(const nlohmann::ordered_json& data, const PageOptions& options);

}  // namespace sluice::report
