// text: small helpers for messages: nearest known word, human-readable sizes and durations, joined lists.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of UTF-8, as some editors write it

// Levenshtein distance: single-character insertions, deletions and replacements.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`; empty when there is none.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'resnet8'?" where a candidate is near enough to be meant, or begins with `word`; else empty.
// tolerance: edits; by default a third of the word, at least 2.
[[nodiscard]] std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                                       std::optional<std::size_t> tolerance = {});

[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);  // "1 step", "2 steps", "3 batches"

[[nodiscard]] std::string first_line(std::string_view text);  // up to the first line break

// For terminals: every control character (of C0, C1, and DEL) becomes '?'.
[[nodiscard]] std::string printable(std::string_view text);

[[nodiscard]] std::string join(std::span<const std::string> words, std::string_view separator);

[[nodiscard]] std::string numbered(std::string_view noun, std::span<const int> numbers);  // "rank 1", "ranks 1, 3"
[[nodiscard]] std::string seconds_text(std::chrono::nanoseconds time);                    // "0.5 s", "60 s"
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);                               // "1.5 MiB"
// "512MiB", "1.5 GB", "1000": a number and B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024), in any
// case; bytes without a unit. The nearest there is to one beyond 64 bits; nothing for another text.
[[nodiscard]] std::optional<std::int64_t> parse_bytes(std::string_view text);
[[nodiscard]] std::string exact_bytes(std::int64_t bytes);   // "512MiB", "1000B": reads back as the same
[[nodiscard]] std::string human_count(std::uint64_t count);  // "11.2 M"
[[nodiscard]] std::string human_duration(double seconds);    // "1 h 02 min", "3 min 20 s", "4.2 s"

[[nodiscard]] std::string percent(double share);  // "12 %"; of less than ten: "9.5 %"

// "3.14"; "1.00e+15" from there on; "NaN", "Infinity" and "-Infinity", as metrics.jsonl names them.
[[nodiscard]] std::string fixed(double value, int decimals);

}  // namespace sluice
