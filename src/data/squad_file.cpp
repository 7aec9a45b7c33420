#include "data/squad_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_set>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "data/file.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::data {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxBytes = std::uint64_t{4} << 30;

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  SquadFile parse(const Json& root) {
    for (const Json& article : list(root, "data", "the file")) {
      for (const Json& paragraph : list(article, "paragraphs", "an article")) {
        file_.contexts.push_back(text(paragraph, "context", "a paragraph"));
        find_characters();
        for (const Json& question : list(paragraph, "qas", "a paragraph")) add(question);
      }
    }
    if (file_.questions.empty()) fail("has no questions; check that it is in SQuAD's format");
    return std::move(file_);
  }

 private:
  template <typename... What>
  [[noreturn]] void fail(const What&... what) const {
    throw DataError(name_, ": ", printable(concat(what...)));
  }

  const Json& member(const Json& object, const char* key, const std::string& owner) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || found == object.end()) fail(owner, " has no \"", key, "\"; SQuAD's format needs it");
    return *found;
  }
  const Json& list(const Json& object, const char* key, const std::string& owner) const {
    const Json& found = member(object, key, owner);
    if (!found.is_array()) fail("\"", key, "\" of ", owner, " is not a list; SQuAD's format needs one");
    return found;
  }
  std::string text(const Json& object, const char* key, const std::string& owner) const {
    const Json& found = member(object, key, owner);
    if (!found.is_string()) fail("\"", key, "\" of ", owner, " is not a text; SQuAD's format needs one");
    return found.get<std::string>();
  }

  void find_characters() {
    const std::string& context = file_.contexts.back();
    characters_.clear();
    for (std::size_t i = 0; i < context.size(); ++i) {
      if (text::begins_character(context[i])) characters_.push_back(i);
    }
    characters_.push_back(context.size());
  }

  void add(const Json& json) {
    Question question{.id = text(json, "id", "a question"), .context = file_.contexts.size() - 1};
    const std::string owner = concat("question \"", question.id, "\"");
    if (!ids_.insert(question.id).second) fail(owner, " occurs twice; give each question an id of its own");
    question.text = text(json, "question", owner);
    const auto impossible = json.find("is_impossible");
    const bool has_none = impossible != json.end() && impossible->is_boolean() && impossible->get<bool>();
    if (!has_none) {
      for (const Json& answer : list(json, "answers", owner)) add_answer(question, answer, owner);
    }
    file_.has_impossible = file_.has_impossible || question.answers.empty();
    file_.questions.push_back(std::move(question));
  }

  void add_answer(Question& question, const Json& json, const std::string& owner) {
    const std::string answer = text(json, "text", "an answer of " + owner);
    if (answer.empty()) return;  // as in files in which it stands for no answer
    const bool is_first = question.answers.empty();
    question.answers.push_back(answer);
    if (!is_first) return;
    const Json& start = member(json, "answer_start", "an answer of " + owner);
    if (!start.is_number_integer()) fail("\"answer_start\" of ", owner, " is not a whole number; correct it");
    const auto begin = start.get<std::int64_t>();
    if (begin >= 0 && begin < std::ssize(characters_)) {
      const std::string_view rest = std::string_view(file_.contexts.back()).substr(characters_[begin]);
      if (rest.starts_with(answer)) {
        question.begin = begin;
        question.end = begin + static_cast<std::int64_t>(text::count_points(answer));
        return;
      }
      if (differs_in_spaces(rest, answer)) {
        ++file_.misplaced_answers;
        return;
      }
    }
    fail("the answer \"", answer, "\" of ", owner, " is not in its context at character ", begin,
         "; correct \"answer_start\" or remove the question");
  }

  // Whether `rest` begins with the answer if white space is left out of both.
  static bool differs_in_spaces(std::string_view rest, std::string_view answer) {
    std::size_t at = 0;
    for (std::size_t i = text::end_of_spaces(answer, 0); i < answer.size();
         i = text::end_of_spaces(answer, i), at = text::end_of_spaces(rest, at)) {
      if (at == 0) at = text::end_of_spaces(rest, 0);
      if (at >= rest.size() || rest[at++] != answer[i++]) return false;
    }
    return true;
  }

  const std::string& name_;
  SquadFile file_;
  std::unordered_set<std::string> ids_;
  std::vector<std::size_t> characters_;  // byte at which each character of the last context begins, and its end
};

}  // namespace

SquadFile parse_squad(std::string_view content, const std::string& name) {
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  Json root;
  try {
    root = Json::parse(content);
  } catch (const Json::exception& error) {
    throw DataError(name, ": is not JSON in UTF-8: ", printable(first_line(error.what())), "; correct it");
  }
  return Parser(name).parse(root);
}

SquadFile read_squad(const std::filesystem::path& file) {
  const std::vector<std::uint8_t> content = read_bytes(file, kMaxBytes);
  return parse_squad({reinterpret_cast<const char*>(content.data()), content.size()}, file.string());
}

}  // namespace sluice::data
