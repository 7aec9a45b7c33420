#include "core/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "core/concat.h"

namespace sluice {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const auto closer = [&](const std::string& a, const std::string& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(), closer);
  return best == candidates.end() ? std::string{} : *best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::optional<std::size_t> tolerance) {
  const auto begun = [&](const std::string& name) { return word.size() > 2 && name.starts_with(word); };
  const auto longer = std::ranges::find_if(candidates, begun);
  const std::string candidate = longer != candidates.end() ? *longer : nearest(word, candidates);
  const std::size_t edits = tolerance.value_or(std::max<std::size_t>(2, word.size() / 3));
  const bool is_near = longer != candidates.end() || edit_distance(word, candidate) <= edits;
  return is_near && !candidate.empty() ? concat("; did you mean '", candidate, "'?") : std::string{};
}

std::string counted(std::int64_t count, std::string_view noun) {
  const bool hisses = noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with("s") || noun.ends_with("x");
  return concat(count, " ", noun, count == 1 ? "" : hisses ? "es" : "s");
}

std::string numbered(std::string_view noun, std::span<const int> numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return concat(noun, numbers.size() == 1 ? " " : "s ", join(words, ", "));
}

std::string seconds_text(std::chrono::nanoseconds time) {
  return concat(std::chrono::duration<double>(time).count(), " s");
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string printable(std::string_view text) {
  constexpr unsigned char kSpace = 0x20, kDelete = 0x7f, kC1Lead = 0xc2, kContinuation = 0x80, kC1End = 0xa0;
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : kSpace;
    const bool is_c1 = byte == kC1Lead && next >= kContinuation && next < kC1End;  // two bytes in UTF-8
    safe += byte < kSpace || byte == kDelete || is_c1 ? '?' : text[i];
    if (is_c1) ++i;
  }
  return safe;
}

std::string join(std::span<const std::string> words, std::string_view separator) {
  std::string joined;
  for (const auto& word : words) {
    if (!joined.empty()) joined += separator;
    joined += word;
  }
  return joined;
}

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  constexpr double kTooLong = 1e15;
  std::ostringstream out;
  if (std::abs(value) < kTooLong) {
    out << std::fixed << std::setprecision(decimals) << value;
  } else {
    out << std::scientific << std::setprecision(std::max(decimals, 2)) << value;
  }
  return std::move(out).str();
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < kUnits.size(); ++unit) value /= 1024.0;
  return concat(fixed(value, unit == 0 ? 0 : 1), " ", kUnits[unit]);
}

namespace {

std::int64_t nearest_integer(double value) {
  constexpr double kTooMuch = 9223372036854775808.0;
  if (std::abs(value) < kTooMuch) return static_cast<std::int64_t>(std::round(value));
  return value < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number)) return std::nullopt;
  std::string unit(end, text.data() + text.size());
  std::erase(unit, ' ');
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (unit.ends_with('b')) unit.pop_back();
  const bool is_binary = unit.ends_with('i');
  if (is_binary) unit.pop_back();
  constexpr std::string_view kPrefixes = "kmgt";
  const auto prefix = unit.empty() ? std::string_view::npos : kPrefixes.find(unit);
  if (unit.empty() ? is_binary : unit.size() != 1 || prefix == std::string_view::npos) return std::nullopt;
  return nearest_integer(number * std::pow(is_binary ? 1024.0 : 1000.0, unit.empty() ? 0 : prefix + 1));
}

std::string exact_bytes(std::int64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes > 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return concat(bytes, kUnits[unit]);
}

std::string human_count(std::uint64_t count) {
  constexpr std::array kUnits{"", " k", " M", " G"};
  auto value = static_cast<double>(count);
  std::size_t unit = 0;
  for (; value >= 1000.0 && unit + 1 < kUnits.size(); ++unit) value /= 1000.0;
  return concat(fixed(value, unit == 0 ? 0 : 1), kUnits[unit]);
}

std::string percent(double share) {
  const bool is_none = std::abs(share) < 0.0005;  // avoids "-0.0 %"
  return concat(fixed(is_none ? 0 : 100 * share, share < 0.0995 ? 1 : 0), " %");
}

std::string human_duration(double seconds) {
  constexpr double kNoDuration = 1e15;  // also catches NaN
  if (seconds < 60.0 || !(seconds < kNoDuration)) return concat(fixed(seconds, 1), " s");
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  std::ostringstream out;
  out << std::setfill('0');
  if (whole < 3600) {
    out << whole / 60 << " min " << std::setw(2) << whole % 60 << " s";
  } else {
    out << whole / 3600 << " h " << std::setw(2) << whole % 3600 / 60 << " min";
  }
  return std::move(out).str();
}

}  // namespace sluice
