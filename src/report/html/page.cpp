#include "report/html/page.h"

#include <array>
#include <cstdio>
#include <initializer_list>
#include <random>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "report/html/assets.h"

namespace sluice::report {
namespace {

using Replacement = std::pair<std::string_view, std::string_view>;

// Applies the replacements in order; a later one may match text inserted by an earlier one.
std::string replaced(std::string text, std::initializer_list<Replacement> replacements) {
  for (const auto& [what, with] : replacements) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
      text.replace(at, what.size(), with);
  }
  return text;
}

// Returns a random word, so that text from a run cannot contain it.
std::string fresh_nonce() {
  std::random_device random;
  std::string nonce;
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> word{};
    (void)std::snprintf(word.data(), word.size(), "%08x", static_cast<unsigned>(random()));
    nonce += word.data();
  }
  return nonce;
}

}  // namespace

std::string script_json(const nlohmann::ordered_json& data) {
  // Outside of strings, JSON contains none of these characters.
  return replaced(
      data.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace),
      {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}, {"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"}});
}

std::string html_text(std::string_view text) {
  // The JSON round trip replaces invalid UTF-8.
  const std::string quoted =
      nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return replaced(nlohmann::json::parse(quoted).get<std::string>(),
                  {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string filled(std::string_view template_text, const std::map<std::string, std::string, std::less<>>& values) {
  std::string text;
  while (true) {
    const std::size_t begin = template_text.find("{{");
    if (begin == std::string_view::npos) break;
    const std::size_t end = template_text.find("}}", begin);
    check(end != std::string_view::npos, "a closing }} for each {{ in the template");
    const auto value = values.find(template_text.substr(begin + 2, end - begin - 2));
    check(value != values.end(), "a value for each {{NAME}} in the template");
    text += template_text.substr(0, begin);
    text += value->second;
    template_text.remove_prefix(end + 2);
  }
  text += template_text;
  return text;
}

std::string page(const nlohmann::ordered_json& data, const PageOptions& options) {
  return filled(
      assets::kPage,
      {{"TITLE", html_text(options.title)},
       {"NONCE", fresh_nonce()},
       {"REFRESH",
        options.refresh_s > 0 ? concat("<meta http-equiv=\"refresh\" content=\"", options.refresh_s, "\">") : ""},
       {"STYLE", std::string(assets::kStyle)},
       {"CHART", std::string(assets::kChart)},
       {"DATA", script_json(data)},
       {"SCRIPT", std::string(assets::kScript)}});
}

}  // namespace sluice::report
