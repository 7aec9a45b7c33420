#include "text/post_processor.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace sluice::text {
namespace {

// How many tokens of each text stay in the first window.
using Lengths = std::pair<std::size_t, std::size_t>;

Lengths longest_first(std::size_t first, std::size_t second, std::size_t most) {
  const std::size_t shorter = std::min(first, second);
  std::size_t kept_of_shorter = shorter;
  std::size_t kept_of_longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (kept_of_shorter + kept_of_longer > most) {
    kept_of_shorter = most / 2;
    kept_of_longer = kept_of_shorter + most % 2;
  }
  return first > second ? Lengths{kept_of_longer, kept_of_shorter} : Lengths{kept_of_shorter, kept_of_longer};
}

Lengths kept_lengths(std::size_t first, std::size_t second, bool is_pair, std::size_t most,
                     TruncationStrategy strategy) {
  if (most == 0) return {0, 0};
  if (first + second <= most) return {first, second};
  if (strategy == TruncationStrategy::kLongestFirst)
    return is_pair ? longest_first(first, second, most) : Lengths{most, 0};
  const bool cuts_first = strategy == TruncationStrategy::kOnlyFirst;
  if (!cuts_first && !is_pair) throw ConfigError("truncation \"only_second\" needs a pair of texts");
  const std::size_t excess = first + second - most;
  const auto [whole, cut] = cuts_first ? Lengths{second, first} : Lengths{first, second};
  if (cut <= excess) {
    throw DataError("the ", cuts_first ? "second" : "first", " text alone has ", whole,
                    " tokens, which leaves no room within ", most, " for the other text; raise the maximum length");
  }
  return cuts_first ? Lengths{first - excess, second} : Lengths{first, second - excess};
}

}  // namespace

std::size_t PostProcessor::added_tokens(bool is_pair) const {
  std::size_t count = 0;
  for (const TemplatePiece& piece : is_pair ? pair : single) count += piece.ids.size();
  return count;
}

std::vector<PostProcessor::Window> PostProcessor::cut(std::size_t length, std::size_t kept, std::size_t stride) {
  if (kept >= length) return {{0, length, true}};
  if (kept == 0) return {{0, 0, true}, {0, length, false}};
  if (stride >= kept) {
    throw ConfigError("the stride of ", stride, " tokens must be less than the ", kept,
                      " tokens of the text that a window has room for");
  }
  std::vector<Window> windows;
  for (std::size_t begin = 0; windows.empty() || windows.back().end < length; begin += kept - stride) {
    windows.push_back({begin, std::min(begin + kept, length), begin == 0});
  }
  return windows;
}

void PostProcessor::append(const Part& part, const TemplatePiece& piece, bool adds_special_tokens,
                           Encoding& out) const {
  const auto [tokens, window] = part;
  const auto begin = static_cast<std::ptrdiff_t>(window.begin);
  const auto end = static_cast<std::ptrdiff_t>(window.end);
  const std::size_t at = out.ids.size();
  out.ids.insert(out.ids.end(), tokens->ids.begin() + begin, tokens->ids.begin() + end);
  out.offsets.insert(out.offsets.end(), tokens->offsets.begin() + begin, tokens->offsets.begin() + end);
  const std::size_t size = out.ids.size();
  // `tokenizers` leaves the types of later windows as they are: the number of the text.
  const bool has_own_type = window.is_first || (is_roberta && adds_special_tokens);
  out.type_ids.resize(size, has_own_type ? piece.type_id : static_cast<std::uint8_t>(piece.sequence));
  out.special_tokens_mask.resize(size, 0);
  out.sequence_ids.resize(size, static_cast<std::int8_t>(piece.sequence));
  if (!trims_offsets) return;
  for (std::size_t i = at; i < size; ++i) {
    CharRange& range = out.offsets[i];
    auto [leading, trailing] = tokens->spaces[window.begin + i - at];
    const bool may_be_prefix = i == at || range.begin == 0;
    if (leading == 1 && may_be_prefix && adds_prefix_space) leading = 0;
    range.begin = std::min(range.begin + leading, range.end);
    if (trailing > 0 && range.end >= trailing) range.end = std::max(range.end - trailing, range.begin);
  }
}

void PostProcessor::assemble(const Template& pieces, std::span<const Part> parts, bool adds_special_tokens,
                             Encoding& out) const {
  out.clear();
  for (const TemplatePiece& piece : pieces) {
    if (piece.sequence >= 0) {
      append(parts[static_cast<std::size_t>(piece.sequence)], piece, adds_special_tokens, out);
    } else if (adds_special_tokens) {
      out.ids.insert(out.ids.end(), piece.ids.begin(), piece.ids.end());
      out.offsets.resize(out.ids.size());
      out.type_ids.resize(out.ids.size(), piece.type_id);
      out.special_tokens_mask.resize(out.ids.size(), 1);
      out.sequence_ids.resize(out.ids.size(), -1);
    }
  }
}

void PostProcessor::encode(const TextTokens& first, const TextTokens* second, bool adds_special_tokens,
                           Encoding& out) const {
  const std::array<Part, 2> parts = {
      {{&first, {0, first.ids.size(), true}}, {second, {0, second == nullptr ? 0 : second->ids.size(), true}}}};
  assemble(second == nullptr ? single : pair, parts, adds_special_tokens, out);
}

std::vector<Encoding> PostProcessor::windows(const TextTokens& first, const TextTokens* second,
                                             bool adds_special_tokens, const Truncation& truncation) const {
  const bool is_pair = second != nullptr;
  const std::size_t added = adds_special_tokens ? added_tokens(is_pair) : 0;
  if (truncation.max_length < added) {
    throw ConfigError("a maximum length of ", truncation.max_length, " tokens has no room for the ", added,
                      " special tokens of the tokenizer");
  }
  const std::size_t second_length = is_pair ? second->ids.size() : 0;
  const auto [kept_first, kept_second] =
      kept_lengths(first.ids.size(), second_length, is_pair, truncation.max_length - added, truncation.strategy);
  std::array<std::vector<Window>, 2> cuts = {cut(first.ids.size(), kept_first, truncation.stride),
                                             cut(second_length, kept_second, truncation.stride)};
  const Template& pieces = is_pair ? pair : single;
  // `tokenizers` merges from left to right: the later windows of the text that comes first, each with all windows of
  // the other one; then its first window with the later windows of the other one.
  const auto leading =
      std::find_if(pieces.begin(), pieces.end(), [](const TemplatePiece& p) { return p.sequence >= 0; });
  const std::size_t outer = leading == pieces.end() ? 0 : static_cast<std::size_t>(leading->sequence);
  const auto uses = [&](std::size_t sequence) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [&](const TemplatePiece& p) { return p.sequence == static_cast<int>(sequence); });
  };
  for (const std::size_t sequence : {std::size_t{0}, std::size_t{1}}) {
    if (!uses(sequence)) cuts[sequence].resize(1);
  }
  std::vector<Encoding> result;
  const auto add = [&](const Window& outer_window, const Window& inner_window) {
    std::array<Part, 2> parts = {{{&first, {}}, {second, {}}}};
    parts[outer].window = outer_window;
    parts[1 - outer].window = inner_window;
    assemble(pieces, parts, adds_special_tokens, result.emplace_back());
  };
  const auto& outer_cuts = cuts[outer];
  const auto& inner_cuts = cuts[1 - outer];
  add(outer_cuts[0], inner_cuts[0]);
  for (std::size_t i = 1; i < outer_cuts.size(); ++i) {
    for (const Window& inner : inner_cuts) add(outer_cuts[i], inner);
  }
  for (std::size_t i = 1; i < inner_cuts.size(); ++i) add(outer_cuts[0], inner_cuts[i]);
  return result;
}

}  // namespace sluice::text
