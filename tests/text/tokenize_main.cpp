// Tokenizes for the comparisons with `tokenizers` and `sentencepiece`.
//
//   tokenize_main FILE [--pair] [--no-special] [--max-length N] [--stride N] [--strategy NAME] [--decode] < TEXT
//
// Reads frames: the number of bytes of a text as 4 little-endian bytes, then the text; with --pair two of them make one
// request. Writes for each request one line of JSON: a list of windows {"ids", "offsets", "types", "special",
// "sequences"}, and "text" with --decode.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/error.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

template <typename Values, typename Write>
void write_list(const char* name, const Values& values, Write&& write) {
  std::cout << "\"" << name << "\":[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) std::cout << ',';
    write(values[i]);
  }
  std::cout << ']';
}

void write_text(const std::string& text) {  // in hexadecimal
  std::cout << '"';
  for (const char c : text) std::cout << "0123456789abcdef"[(c >> 4) & 15] << "0123456789abcdef"[c & 15];
  std::cout << '"';
}

void write(const Encoding& encoding, const std::optional<std::string>& text) {
  const auto number = [](auto value) { std::cout << static_cast<long>(value); };
  std::cout << '{';
  write_list("ids", encoding.ids, number);
  std::cout << ',';
  write_list("offsets", encoding.offsets, [](CharRange r) { std::cout << '[' << r.begin << ',' << r.end << ']'; });
  std::cout << ',';
  write_list("types", encoding.type_ids, number);
  std::cout << ',';
  write_list("special", encoding.special_tokens_mask, number);
  std::cout << ',';
  write_list("sequences", encoding.sequence_ids, number);
  if (text) {
    std::cout << ",\"text\":";
    write_text(*text);
  }
  std::cout << '}';
}

std::optional<std::string> read_frame() {
  std::uint32_t size = 0;
  if (!std::cin.read(reinterpret_cast<char*>(&size), sizeof size)) return {};
  std::string text(size, '\0');
  std::cin.read(text.data(), size);
  return text;
}

struct Request {
  bool is_pair = false;
  bool decodes = false;
  bool special = true;
  std::optional<Truncation> truncation;
};

TruncationStrategy strategy_of(const std::string& name) {
  if (name == "only_first") return TruncationStrategy::kOnlyFirst;
  return name == "only_second" ? TruncationStrategy::kOnlySecond : TruncationStrategy::kLongestFirst;
}

Request read_options(int count, char** words) {
  Request request;
  Truncation truncation{.max_length = 0};
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--pair") request.is_pair = true;
    if (word == "--decode") request.decodes = true;
    if (word == "--no-special") request.special = false;
    if (word == "--max-length") truncation.max_length = std::stoul(words[++i]);
    if (word == "--stride") truncation.stride = std::stoul(words[++i]);
    if (word == "--strategy") truncation.strategy = strategy_of(words[++i]);
  }
  if (truncation.max_length > 0) request.truncation = truncation;
  return request;
}

int run(int count, char** words) {
  const auto [is_pair, decodes, special, truncation] = read_options(count, words);
  const auto tokenizer = open_tokenizer(words[1]);
  while (const auto text = read_frame()) {
    const auto second = is_pair ? read_frame() : std::nullopt;
    std::cout << '[';
    try {
      const std::vector<Encoding> windows = truncation ? tokenizer->encode_windows(*text, second, special, *truncation)
                                                       : std::vector{tokenizer->encode(*text, second, special)};
      for (std::size_t i = 0; i < windows.size(); ++i) {
        if (i > 0) std::cout << ',';
        write(windows[i], decodes ? std::optional(tokenizer->decode(windows[i].ids)) : std::nullopt);
      }
    } catch (const Error& error) {
      std::cout << nlohmann::json(error.what()).dump();
    }
    std::cout << "]\n";
  }
  return 0;
}

}  // namespace
}  // namespace sluice::text

int main(int count, char** words) {
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);
  try {
    return sluice::text::run(count, words);
  } catch (const sluice::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  }
}
