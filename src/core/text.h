// text: helpers for messages: nearest known word, human-readable sizes and durations, joined lists.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // UTF-8 byte order mark, which some editors write

[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'resnet8'?" if a candidate begins with `word` or is within `tolerance` edits, else empty. Default
// tolerance: a third of the word's length, at least 2.
[[nodiscard]] std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                                       std::optional<std::size_t> tolerance = {});

[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);  // "1 step", "2 steps", "3 batches"

[[nodiscard]] std::string first_line(std::string_view text);

// Replaces every control character (C0, C1 and DEL) by '?', for terminals.
[[nodiscard]] std::string printable(std::string_view text);

[[nodiscard]] std::string join(std::span<const std::string> words, std::string_view separator);

[[nodiscard]] std::string numbered(std::string_view noun, std::span<const int> numbers);  // "rank 1", "ranks 1, 3"
[[nodiscard]] std::string seconds_text(std::chrono::nanoseconds time);
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
// Parses "512MiB", "1.5 GB" or "1000": KB to TB are powers of 1000, KiB to TiB of 1024, in any case. Numbers beyond 64
// bits are clamped; other text gives nullopt.
[[nodiscard]] std::optional<std::int64_t> parse_bytes(std::string_view text);
[[nodiscard]] std::string exact_bytes(std::int64_t bytes);  // "512MiB", "1000B"; parse_bytes() reads it back exactly
[[nodiscard]] std::string human_count(std::uint64_t count);
[[nodiscard]] std::string human_duration(double seconds);  // "1 h 02 min", "3 min 20 s", "4.2 s"

[[nodiscard]] std::string percent(double share);  // "12 %"; below 10: "9.5 %"

// "3.14"; from 1e15 on "1.00e+15"; "NaN", "Infinity" and "-Infinity" as in metrics.jsonl.
[[nodiscard]] std::string fixed(double value, int decimals);

}  // namespace sluice
