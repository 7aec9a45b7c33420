#include "text/normalizer.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

// Reads a text and hands out the origin of each new character by the rule of `tokenizers`: `change` 1 inserts a
// character, 0 replaces the next one, -n replaces it and drops n more.
class Origins {
 public:
  Origins(const AlignedText& text, std::uint32_t first_char) : text_(text), last_{first_char, first_char} {}

  CharRange take(int change) {
    if (change > 0) return last_;
    const CharRange taken = advance();
    for (; change < 0; ++change) advance();
    return taken;
  }

 private:
  CharRange advance() {
    if (at_ >= text_.size()) return last_;
    last_ = text_.origin[at_];
    do ++at_;
    while (at_ < text_.size() && !begins_character(text_.bytes[at_]));
    return last_;
  }

  const AlignedText& text_;
  std::size_t at_ = 0;
  CharRange last_;
};

struct Change {
  char32_t point;
  int change;
  std::uint8_t combining_class;
};

// The full decomposition in canonical order.
std::vector<Change> decomposed(std::string_view text, bool compatibly) {
  std::vector<Change> result;
  result.reserve(text.size());
  std::size_t pending = 0;  // first character that later ones may have to precede
  const auto sort_pending = [&] {
    std::ranges::stable_sort(result.begin() + static_cast<std::ptrdiff_t>(pending), result.end(), {},
                             &Change::combining_class);
    pending = result.size();
  };
  for (const char* at = text.data(); at != text.data() + text.size();) {
    int change = 0;
    for (const char32_t point : decompose(next_point(at), compatibly)) {
      const std::uint8_t combining = combining_class(point);
      if (combining == 0) sort_pending();
      result.push_back({point, change, combining});
      change = 1;
    }
  }
  sort_pending();
  return result;
}

// The canonical composition of decomposed text.
std::vector<Change> composed(const std::vector<Change>& parts) {
  std::vector<Change> result;
  result.reserve(parts.size());
  std::size_t starter = 0;
  bool has_starter = false;
  int last_class = -1;  // class of the character before, if it did not compose with the starter
  for (const Change& part : parts) {
    if (has_starter && last_class < part.combining_class) {
      if (const char32_t whole = compose(result[starter].point, part.point)) {
        result[starter].point = whole;
        result[starter].change += part.change - 1;
        continue;
      }
    }
    last_class = part.combining_class;
    if (part.combining_class == 0) {
      starter = result.size();
      has_starter = true;
      last_class = -1;
    }
    result.push_back(part);
  }
  return result;
}

void normalize_unicode(PointStep form, std::uint32_t first_char, const AlignedText& in, AlignedText& out) {
  const bool compatibly = form == PointStep::kNfkd || form == PointStep::kNfkc;
  std::vector<Change> changes = decomposed(in.bytes, compatibly);
  if (form == PointStep::kNfc || form == PointStep::kNfkc) changes = composed(changes);
  Origins origins(in, first_char);
  for (const Change& change : changes) out.append(change.point, origins.take(change.change));
}

// Calls emit(point) for what a step makes of one code point.
template <typename Emit>
void map_point(PointStep step, char32_t point, Emit&& emit) {
  switch (step) {
    case PointStep::kClean:
      if (has_property(point, Property::kControl) || point == 0) return;
      return emit(has_property(point, Property::kSpace) ? U' ' : point);
    case PointStep::kIsolateCjk:
      if (!is_cjk(point)) return emit(point);
      for (const char32_t c : {U' ', point, U' '}) emit(c);
      return;
    case PointStep::kStripNonspacing:
      if (!has_property(point, Property::kNonspacing)) emit(point);
      return;
    case PointStep::kStripMarks:
      if (!has_property(point, Property::kMark)) emit(point);
      return;
    case PointStep::kLower:
      for (const char32_t c : lower(point)) emit(c);
      return;
    default:
      for (const char32_t c : decompose(point, step == PointStep::kNfkd)) emit(c);
  }
}

bool is_unicode_form(PointStep step) { return step >= PointStep::kNfd; }

void normalize(PointStep step, std::uint32_t first_char, Normalizer::Scratch& scratch) {
  const AlignedText& in = scratch.text;
  if (is_unicode_form(step)) return normalize_unicode(step, first_char, in, scratch.other);
  const char* const begin = in.bytes.data();
  for (const char* at = begin; at != begin + in.size();) {
    const CharRange from = in.origin[static_cast<std::size_t>(at - begin)];
    map_point(step, next_point(at), [&](char32_t point) { scratch.other.append(point, from); });
  }
}

void normalize(const ReplaceStep& step, std::uint32_t first_char, Normalizer::Scratch& scratch) {
  const AlignedText& in = scratch.text;
  std::size_t copied = 0;
  step.pattern->for_each(in.bytes, scratch.pattern, [&](std::size_t begin, std::size_t end) {
    scratch.other.append(in, copied, begin);
    scratch.other.append(step.content, end == 0 ? CharRange{first_char, first_char} : in.origin[end - 1]);
    copied = end;
  });
  scratch.other.append(in, copied, in.size());
}

void normalize(const PrependStep& step, std::uint32_t /*first_char*/, Normalizer::Scratch& scratch) {
  const AlignedText& in = scratch.text;
  if (in.size() > 0) scratch.other.append(step.content, in.origin.front());
  scratch.other.append(in, 0, in.size());
}

void normalize(const StripStep& step, std::uint32_t /*first_char*/, Normalizer::Scratch& scratch) {
  const std::string_view text = scratch.text.bytes;
  const std::size_t begin = step.left ? end_of_spaces(text, 0) : 0;
  scratch.other.append(scratch.text, begin, step.right ? begin_of_spaces(text, text.size(), begin) : text.size());
}

void normalize(const SentencePieceStep& step, std::uint32_t /*first_char*/, Normalizer::Scratch& scratch) {
  if (scratch.text.size() > 0) step.normalizer->run(scratch.text, scratch.other);
}

}  // namespace

void reject_changed_text() {
  throw DataError("the tokenizer makes more than 1 GiB of a text; split the text into shorter parts");
}

// Entries: 0 for a code point that stays, else kChanged, kNeedsSteps, or both fields: bytes in the pool.
struct Normalizer::Table {
  static constexpr std::uint32_t kChanged = 1U << 31;
  static constexpr std::uint32_t kNeedsSteps = 1U << 30;  // the result depends on the characters around, or is long
  static constexpr int kOffsetBits = 24;
  static constexpr std::size_t kMostBytes = 64;  // has 6 bits

  std::string pool;
  std::unordered_map<std::string, std::uint32_t> pooled;  // place in the pool
  PointTable<std::uint32_t> entries;

  explicit Table(const std::vector<NormalizerStep>& steps)
      : entries([&](char32_t point) { return entry(point, steps); }) {
    decltype(pooled)().swap(pooled);
  }

  std::uint32_t entry(char32_t point, const std::vector<NormalizerStep>& steps) {
    std::u32string now(1, point);
    std::u32string next;
    bool reorders = false;
    for (const NormalizerStep& step : steps) {
      const PointStep kind = std::get<PointStep>(step);
      reorders |= is_unicode_form(kind);
      next.clear();
      for (const char32_t c : now) map_point(kind, c, [&](char32_t made) { next.push_back(made); });
      now.swap(next);
    }
    // A mark may have to change places with the marks beside it.
    if (reorders && std::any_of(now.begin(), now.end(), [](char32_t c) { return combining_class(c) != 0; }))
      return kNeedsSteps;
    if (now.size() == 1 && now[0] == point) return 0;
    std::string bytes;
    for (const char32_t c : now) append_point(bytes, c);
    if (bytes.size() >= kMostBytes) return kNeedsSteps;
    const auto [at, is_new] = pooled.try_emplace(bytes, static_cast<std::uint32_t>(pool.size()));
    if (is_new) pool += bytes;
    return kChanged | static_cast<std::uint32_t>(bytes.size()) << kOffsetBits | at->second;
  }
};

Normalizer::Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {
  constexpr std::size_t kMostSteps = 8;  // more are rare, and their table takes long
  const bool by_point = std::all_of(steps_.begin(), steps_.end(), [](const NormalizerStep& step) {
    const auto* point_step = std::get_if<PointStep>(&step);
    return point_step != nullptr && *point_step != PointStep::kNfc && *point_step != PointStep::kNfkc;
  });
  if (by_point && !steps_.empty() && steps_.size() <= kMostSteps) table_ = std::make_shared<Table>(steps_);
}

bool Normalizer::append_by_table(std::string_view text, std::uint32_t first_char, AlignedText& out) const {
  const Table& table = *table_;
  std::size_t size = out.size();
  out.resize(size + text.size() + 64);
  std::uint32_t character = first_char;
  for (const char* at = text.data(); at != text.data() + text.size(); ++character) {
    const char* const from = at;
    const std::uint32_t entry = table.entries[next_point(at)];
    const char* bytes = from;
    auto count = static_cast<std::size_t>(at - from);
    if (entry != 0) [[unlikely]] {
      if ((entry & Table::kNeedsSteps) != 0) return false;
      bytes = table.pool.data() + (entry & ((1U << Table::kOffsetBits) - 1));
      count = (entry & ~Table::kChanged) >> Table::kOffsetBits;
    }
    if (size + count + 8 > out.size()) [[unlikely]]
      out.resize(size + size / 2 + 128);
    for (std::size_t i = 0; i < count; ++i) {
      out.bytes[size] = bytes[i];
      out.origin[size++] = {character, character + 1};
    }
  }
  out.resize(size);
  return true;
}

void Normalizer::run_steps(std::uint32_t first_char, Scratch& scratch) const {
  for (const NormalizerStep& step : steps_) {
    scratch.other.clear();
    std::visit([&](const auto& kind) { normalize(kind, first_char, scratch); }, step);
    std::swap(scratch.text, scratch.other);
  }
}

void Normalizer::append(std::string_view text, std::uint32_t first_char, AlignedText& out, Scratch& scratch) const {
  if (steps_.empty()) {
    out.append_original(text, first_char);
    return;
  }
  const std::size_t size = out.size();
  if (table_ != nullptr && append_by_table(text, first_char, out)) return;
  out.resize(size);
  scratch.text.clear();
  scratch.text.append_original(text, first_char);
  run_steps(first_char, scratch);
  out.append(scratch.text, 0, scratch.text.size());
}

std::string Normalizer::normalized(std::string_view text) const {
  AlignedText out;
  Scratch scratch;
  append(text, 0, out, scratch);
  return out.bytes;
}

}  // namespace sluice::text
