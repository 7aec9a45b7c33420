// Answers and their scores for compare_with_squad.py. Reads one JSON object a line, writes one a line:
//   {"answer", "gold", "version"}                -> {"normal", "exact", "f1"}
//   {"context", "windows", "most", ...}          -> {"text", "best": [[begin, end, score], ..], "odds"}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "task/answers.h"
#include "task/squad_score.h"

namespace sluice::task {
namespace {

nlohmann::json score(const nlohmann::json& asked) {
  const std::string answer = asked.at("answer");
  const std::vector<std::string> gold = asked.at("gold");
  const AnswerScore of = score_answer(answer, gold, asked.at("version") == 1 ? SquadVersion::k1 : SquadVersion::k2);
  return {{"normal", normalized_answer(answer)}, {"exact", of.exact}, {"f1", of.f1}};
}

nlohmann::json search(const nlohmann::json& asked) {
  AnswerSearch search({.most = asked.at("most"),
                       .most_tokens = asked.at("most_tokens"),
                       .may_have_none = asked.at("none"),
                       .none_threshold = asked.at("threshold")});
  for (const auto& window : asked.at("windows")) {
    const std::vector<double> starts = window.at("starts"), ends = window.at("ends");
    std::vector<text::CharRange> offsets;
    for (const auto& pair : window.at("offsets"))
      offsets.push_back({pair[0].get<std::uint32_t>(), pair[1].get<std::uint32_t>()});
    search.add({starts, ends, window.at("first"), offsets});
  }
  nlohmann::json best = nlohmann::json::array();
  for (const Answer& answer : search.best()) best.push_back({answer.where.begin, answer.where.end, answer.score});
  return {{"text", search.text(asked.at("context").get<std::string>())}, {"best", best}, {"odds", search.none_odds()}};
}

}  // namespace
}  // namespace sluice::task

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto asked = nlohmann::json::parse(line);
    std::cout << (asked.contains("gold") ? sluice::task::score(asked) : sluice::task::search(asked)) << '\n';
  }
}
