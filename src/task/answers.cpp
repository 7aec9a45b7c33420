#include "task/answers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "text/utf8.h"

namespace sluice::task {
namespace {

double number_or_least(double value) { return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value; }

// Positions of the `most` largest values among `count` from `first` on.
std::vector<std::size_t> largest(std::span<const double> values, int most) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto kept = order.begin() + std::min<std::ptrdiff_t>(most, std::ssize(order));
  std::ranges::partial_sort(order, kept, [&](std::size_t a, std::size_t b) {
    const double of_a = number_or_least(values[a]), of_b = number_or_least(values[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  order.erase(kept, order.end());
  return order;
}

std::size_t bytes_of(std::string_view text, std::size_t from, std::uint32_t characters) {
  std::size_t at = from;
  for (; characters > 0 && at < text.size(); --characters) at += text::character_bytes(text.substr(at));
  return at - from;
}

}  // namespace

std::string_view text_between(std::string_view text, text::CharRange where) {
  const std::size_t begin = bytes_of(text, 0, where.begin);
  return text.substr(begin, bytes_of(text, begin, where.end - where.begin));
}

void AnswerSearch::add(const WindowLogits& window) {
  check(window.starts.size() == window.ends.size() && !window.starts.empty() &&
            window.first_context + window.offsets.size() <= window.starts.size(),
        "logits of all tokens of a window");
  none_score_ = std::min(none_score_, number_or_least(window.starts[0]) + number_or_least(window.ends[0]));
  const std::vector<std::size_t> ends = largest(window.ends, options_.most);
  const auto is_context = [&](std::size_t at) {
    return at >= window.first_context && at - window.first_context < window.offsets.size();
  };
  for (const std::size_t start : largest(window.starts, options_.most)) {
    for (const std::size_t end : ends) {
      if (!is_context(start) || !is_context(end) || end < start) continue;
      if (end - start >= static_cast<std::size_t>(options_.most_tokens)) continue;
      const text::CharRange where{window.offsets[start - window.first_context].begin,
                                  window.offsets[end - window.first_context].end};
      best_.push_back({where, number_or_least(window.starts[start]) + number_or_least(window.ends[end])});
    }
  }
  std::ranges::stable_sort(best_, std::ranges::greater{}, &Answer::score);
  if (std::ssize(best_) > options_.most) best_.resize(static_cast<std::size_t>(options_.most));
}

const Answer* AnswerSearch::best_with_text() const {
  const auto found =
      std::ranges::find_if(best_, [](const Answer& answer) { return answer.where.end > answer.where.begin; });
  return found == best_.end() ? nullptr : &*found;
}

double AnswerSearch::none_odds() const {
  const Answer* const answer = best_with_text();
  return none_score_ - (answer == nullptr ? -std::numeric_limits<double>::infinity() : answer->score);
}

std::string AnswerSearch::text(std::string_view context) const {
  const Answer* const answer = best_with_text();
  const bool is_none = answer == nullptr || (options_.may_have_none && none_odds() > options_.none_threshold);
  return is_none ? std::string() : std::string(text_between(context, answer->where));
}

}  // namespace sluice::task
