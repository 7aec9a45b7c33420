#include "text/pre_tokenizer.h"

#include <array>
#include <string_view>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

std::string_view view(const PreTokenized& text, const Piece& piece) {
  return std::string_view(text.text.bytes).substr(piece.begin, piece.end - piece.begin);
}

void keep(PreTokenized& text, std::size_t begin, std::size_t end) {
  if (begin == end) return;
  text.other_pieces.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), kNoToken});
}

// Makes pieces of text.spans, which cover the piece that begins at `base`.
void apply(Delimiter delimiter, std::size_t base, PreTokenized& text) {
  const auto& spans = text.spans;
  const auto keep_spans = [&](std::size_t first, std::size_t last) {
    keep(text, base + spans[first].begin, base + spans[last].end);
  };
  const auto joins_next = [&](std::size_t i) {
    switch (delimiter) {
      case Delimiter::kContiguous: return spans[i].is_match == spans[i + 1].is_match;
      case Delimiter::kMergedWithPrevious: return spans[i + 1].is_match && !spans[i].is_match;
      case Delimiter::kMergedWithNext: return spans[i].is_match && !spans[i + 1].is_match;
      default: return false;
    }
  };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < spans.size() && joins_next(i)) ++i;
    if (delimiter != Delimiter::kRemoved || !spans[i].is_match) keep_spans(first, i);
  }
}

// Calls each(point, begin, end) for each character of a piece.
template <typename Each>
void for_each_point(std::string_view piece, Each&& each) {
  for (const char* at = piece.data(); at != piece.data() + piece.size();) {
    const auto begin = static_cast<std::uint32_t>(at - piece.data());
    const char32_t point = next_point(at);
    each(point, begin, static_cast<std::uint32_t>(at - piece.data()));
  }
}

// Splits a piece at matches: find(found) calls found(begin, end) for each of them.
template <typename Find>
void split_at(Find&& find, Delimiter delimiter, bool is_inverted, const Piece& piece, PreTokenized& text) {
  std::uint32_t last_end = 0;
  const auto add_span = [&](std::size_t end, bool is_match) {
    text.spans.push_back({last_end, static_cast<std::uint32_t>(end), is_match != is_inverted});
    last_end = static_cast<std::uint32_t>(end);
  };
  text.spans.clear();
  find([&](std::size_t begin, std::size_t end) {
    if (begin > last_end) add_span(begin, false);
    add_span(end, true);
  });
  if (last_end < piece.end - piece.begin) add_span(piece.end - piece.begin, false);
  apply(delimiter, piece.begin, text);
}

void split(const PatternSplit& step, const Piece& piece, PreTokenized& text) {
  const auto find = [&](auto&& found) { step.pattern.for_each(view(text, piece), text.pattern, found); };
  split_at(find, step.delimiter, step.is_inverted, piece, text);
}

void split(const CharacterSplit& step, const Piece& piece, PreTokenized& text) {
  const auto find = [&](auto&& found) {
    for_each_point(view(text, piece), [&](char32_t point, std::uint32_t begin, std::uint32_t end) {
      if (has_property(point, step.property)) found(begin, end);
    });
  };
  split_at(find, step.delimiter, false, piece, text);
}

enum class BertClass : std::uint8_t { kWord, kSpace, kPunctuation };

BertClass bert_class(char32_t point) {
  return has_property(point, Property::kSpace)         ? BertClass::kSpace
         : has_property(point, Property::kPunctuation) ? BertClass::kPunctuation
                                                       : BertClass::kWord;
}

const std::array<BertClass, 128>& ascii_bert_classes() {
  static const std::array<BertClass, 128> kClasses = [] {
    std::array<BertClass, 128> made{};
    for (char32_t point = 0; point < 128; ++point) made[point] = bert_class(point);
    return made;
  }();
  return kClasses;
}

void split(const BertSplit& /*step*/, const Piece& piece, PreTokenized& text) {
  const auto& classes = ascii_bert_classes();
  const char* const whole = text.text.bytes.data();
  const char* const end = whole + piece.end;
  const char* word = whole + piece.begin;
  for (const char* at = word; at != end;) {
    const char* const begin = at;
    const auto byte = static_cast<unsigned char>(*at);
    const BertClass kind = byte < 128 ? (++at, classes[byte]) : bert_class(next_point(at));
    if (kind == BertClass::kWord) continue;
    keep(text, static_cast<std::size_t>(word - whole), static_cast<std::size_t>(begin - whole));
    if (kind == BertClass::kPunctuation) {
      keep(text, static_cast<std::size_t>(begin - whole), static_cast<std::size_t>(at - whole));
    }
    word = at;
  }
  keep(text, static_cast<std::size_t>(word - whole), piece.end);
}

void split(const WordSplit& /*step*/, const Piece& piece, PreTokenized& text) {
  enum class Kind { kSpace, kWord, kOther } run = Kind::kSpace;
  std::uint32_t run_begin = 0;
  const auto close = [&](std::uint32_t end) {
    if (run != Kind::kSpace) keep(text, piece.begin + run_begin, piece.begin + end);
  };
  for_each_point(view(text, piece), [&](char32_t point, std::uint32_t begin, std::uint32_t) {
    const Kind kind = has_property(point, Property::kWord)    ? Kind::kWord
                      : has_property(point, Property::kSpace) ? Kind::kSpace
                                                              : Kind::kOther;
    if (kind == run) return;
    close(begin);
    run = kind;
    run_begin = begin;
  });
  close(piece.end - piece.begin);
}

// Steps that change the text copy each piece to other_text.
template <typename Append>
void rewrite(PreTokenized& text, Append&& append) {
  text.other_text.clear();
  for (Piece& piece : text.pieces) {
    const auto begin = static_cast<std::uint32_t>(text.other_text.size());
    piece.added == kNoToken ? append(piece) : text.other_text.append(text.text, piece.begin, piece.end);
    piece.begin = begin;
    piece.end = static_cast<std::uint32_t>(text.other_text.size());
  }
  std::swap(text.text, text.other_text);
}

template <typename Step>
void split_all(const Step& step, PreTokenized& text) {
  text.other_pieces.clear();
  for (const Piece& piece : text.pieces) {
    piece.added == kNoToken ? split(step, piece, text) : text.other_pieces.push_back(piece);
  }
  std::swap(text.pieces, text.other_pieces);
}

void run_step(const ByteLevelPrefix& /*step*/, PreTokenized& text) {
  rewrite(text, [&](const Piece& piece) {
    if (text.text.bytes[piece.begin] != ' ') text.other_text.append(" ", text.text.origin[piece.begin]);
    text.other_text.append(text.text, piece.begin, piece.end);
  });
}

void run_step(const ByteLevelMap& /*step*/, PreTokenized& text) {
  rewrite(text, [&](const Piece& piece) {
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      text.other_text.append(byte_character(static_cast<std::uint8_t>(text.text.bytes[i])), text.text.origin[i]);
    }
  });
}

void run_step(const MetaspaceSplit& step, PreTokenized& text) {
  using Prepend = MetaspaceSplit::Prepend;
  rewrite(text, [&](const Piece& piece) {
    const std::string_view whole = view(text, piece);
    const CharRange first = text.text.origin[piece.begin];
    const bool has_prefix = whole.starts_with(' ') || whole.starts_with(step.replacement);
    if (!has_prefix && (step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && first.begin == 0))) {
      text.other_text.append(step.replacement, first);
    }
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      const CharRange from = text.text.origin[i];
      const char byte = text.text.bytes[i];
      byte == ' ' ? text.other_text.append(step.replacement, from) : text.other_text.append_byte(byte, from);
    }
  });
  if (step.splits) {
    split_all(PatternSplit{Pattern::literal(step.replacement), Delimiter::kMergedWithNext, false}, text);
  }
}

template <typename Step>
void run_step(const Step& step, PreTokenized& text) {
  split_all(step, text);
}

}  // namespace

void pre_tokenize(const std::vector<PreTokenizerStep>& steps, PreTokenized& text) {
  for (const PreTokenizerStep& step : steps) {
    std::visit([&](const auto& kind) { run_step(kind, text); }, step);
  }
}

}  // namespace sluice::text
