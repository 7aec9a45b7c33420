#include "app/commands/replay_edits.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "app/quantities.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::app {
namespace {

[[noreturn]] void reject_edit(const std::string& edit, const std::string& why) { throw ConfigError(edit, ": ", why); }

int parse_position(const std::string& edit, std::string_view word, std::string_view text) {
  int number = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc{} && rest == end && number >= 0) return number;
  reject_edit(edit, concat("'", text, "' is not the number of a ", word, "; numbers count from 0"));
}

tune::WorkKind parse_kind(const std::string& edit, std::string_view text) {
  if (const auto kind = tune::work_kind(text)) return *kind;
  std::vector<std::string> words;
  for (int kind = 0; kind < tune::kWorkKinds; ++kind) words.emplace_back(tune::word(static_cast<tune::WorkKind>(kind)));
  const std::string meant = did_you_mean(text, words);
  reject_edit(edit, concat("'", text, "' is neither stage:N, device:NAME, rank:N, replica:N nor a kind of work (",
                           join(words, ", "), ")", meant));
}

template <typename Value>
void set_once(const std::string& edit, std::string_view word, std::optional<Value>& value_of_word, Value value) {
  if (value_of_word)
    reject_edit(edit, concat("it selects two of ", word, "; select one, and repeat the option for the other"));
  value_of_word = std::move(value);
}

// "stage:1,forward"
tune::WorkSelector parse_selector(const std::string& edit, std::string_view text) {
  tune::WorkSelector selector;
  while (true) {
    const std::string_view one = text.substr(0, text.find(','));
    const std::string_view word = one.substr(0, one.find(':'));
    const std::string_view value = word.size() < one.size() ? one.substr(word.size() + 1) : std::string_view{};
    if (word == "stage") {
      set_once(edit, word, selector.stage, parse_position(edit, word, value));
    } else if (word == "rank") {
      set_once(edit, word, selector.rank, parse_position(edit, word, value));
    } else if (word == "replica") {
      set_once(edit, word, selector.replica, parse_position(edit, word, value));
    } else if (word == "device" && !value.empty()) {
      set_once(edit, word, selector.device, std::string(value));
    } else {
      set_once(edit, "the kinds", selector.kind, parse_kind(edit, one));
    }
    if (one.size() == text.size()) return selector;
    text.remove_prefix(one.size() + 1);
  }
}

std::pair<std::string_view, std::string_view> halves(const std::string& edit, std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0)
    reject_edit(edit, "give WHAT=CHANGE, such as stage:1,forward=0.8 to --scale or stage:1,forward=5ms to --add");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

tune::WorkEdit parse_scale(const std::string& text) {
  const std::string edit = concat("--scale ", text);
  const auto [what, change] = halves(edit, text);
  const auto factor = parse_quantity(change, {}, /*plain=*/1);
  if (!factor || *factor < 0 || *factor > 1e6)
    reject_edit(edit, concat("'", change,
                             "' is not a factor; give a number from 0 to 1000000, for example 0.8 for a fifth less"));
  return {.text = edit, .of = parse_selector(edit, what), .factor = *factor};
}

tune::WorkEdit parse_add(const std::string& text) {
  const std::string edit = concat("--add ", text);
  const auto [what, change] = halves(edit, text);
  const auto seconds = parse_quantity(change.starts_with('+') ? change.substr(1) : change, kTimeUnits);
  if (!seconds || std::abs(*seconds) > 1e5)
    reject_edit(edit,
                concat("'", change, "' is not a time; give a number and ns, us, ms or s, for example 5ms or -200us"));
  return {.text = edit, .of = parse_selector(edit, what), .more = *seconds * 1e9};
}

}  // namespace

std::vector<std::string> ReplayEdits::texts() const {
  std::vector<std::string> all;
  for (const std::string& text : scale) all.push_back(concat("--scale ", text));
  for (const std::string& text : add) all.push_back(concat("--add ", text));
  if (!bandwidth.empty()) all.push_back(concat("--bandwidth ", bandwidth));
  if (!latency.empty()) all.push_back(concat("--latency ", latency));
  return all;
}

tune::StepEdits ReplayEdits::parse() const {
  tune::StepEdits edits;
  for (const std::string& text : scale) edits.work.push_back(parse_scale(text));
  for (const std::string& text : add) edits.work.push_back(parse_add(text));
  if (bandwidth.empty() && latency.empty()) return edits;
  if (bandwidth.empty())
    throw ConfigError("--latency needs --bandwidth: the bandwidth of the recorded network is unknown; give both");
  const auto rate = parse_quantity(bandwidth, kRateUnits);
  if (!rate || *rate <= 0)
    throw ConfigError("--bandwidth ", bandwidth, ": give a number above 0 with a unit (", kRateWords,
                      "), for example 10Gbit/s");
  edits.network = tune::StepEdits::Network{.bytes_per_s = *rate};
  if (latency.empty()) return edits;
  const auto of_message = parse_quantity(latency, kTimeUnits);
  if (!of_message || *of_message < 0)
    throw ConfigError("--latency ", latency, ": give a number of at least 0 with a unit (", kTimeWords,
                      "), for example 50us");
  edits.network->latency_s = *of_message;
  return edits;
}

}  // namespace sluice::app
