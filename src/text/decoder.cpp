#include "text/decoder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  std::string result;
  std::size_t copied = 0;
  for (std::size_t at = 0; !what.empty() && (at = text.find(what, copied)) != std::string::npos;
       copied = at + what.size()) {
    result.append(text, copied, at - copied).append(by);
  }
  if (copied > 0) text = result.append(text, copied);
}

std::string valid(const std::string& bytes) {
  std::string repaired;
  return std::string(repair_utf8(bytes, repaired));
}

void decode_step(const ByteLevelDecode& /*step*/, Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_characters(token).value_or(token);
  tokens = {valid(bytes)};
}

void clean_up(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReplacements = {{{" .", "."},
                                                                                            {" ?", "?"},
                                                                                            {" !", "!"},
                                                                                            {" ,", ","},
                                                                                            {" ' ", "'"},
                                                                                            {" n't", "n't"},
                                                                                            {" 'm", "'m"},
                                                                                            {" do not", " don't"},
                                                                                            {" 's", "'s"},
                                                                                            {" 've", "'ve"},
                                                                                            {" 're", "'re"}}};
  for (const auto& [what, by] : kReplacements) replace_all(text, what, by);
}

void decode_step(const WordPieceDecode& step, Tokens& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[i];
    if (i > 0 && token.starts_with(step.prefix)) {
      token.erase(0, step.prefix.size());
    } else if (i > 0) {
      token.insert(token.begin(), ' ');
    }
    if (step.cleans_up) clean_up(token);
  }
}

void decode_step(const MetaspaceDecode& step, Tokens& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    replace_all(tokens[i], step.replacement, i == 0 && step.removes_first ? "" : " ");
  }
}

std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc{} || end != token.data() + 5) return {};
  return static_cast<char>(byte);
}

void decode_step(const ByteFallbackDecode& /*step*/, Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (std::string text = valid(bytes); text == bytes) {
      result.push_back(std::move(text));
    } else {
      result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");  // U+FFFD for each byte
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes.push_back(*byte);
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

void decode_step(const FuseDecode& /*step*/, Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {std::move(all)};
}

void decode_step(const StripDecode& step, Tokens& tokens) {
  for (std::string& token : tokens) {
    for (std::size_t i = 0; i < step.left && token.starts_with(step.content); ++i) token.erase(0, step.content.size());
    for (std::size_t i = 0; i < step.right && token.ends_with(step.content); ++i) {
      token.resize(token.size() - step.content.size());
    }
  }
}

void decode_step(const ReplaceDecode& step, Tokens& tokens) {
  Pattern::Scratch scratch;
  for (std::string& token : tokens) {
    std::string result;
    std::size_t copied = 0;
    step.pattern.for_each(token, scratch, [&](std::size_t begin, std::size_t end) {
      result.append(token, copied, begin - copied).append(step.content);
      copied = end;
    });
    token = result.append(token, copied);
  }
}

void decode_step(const SentencePieceDecode& step, Tokens& tokens) {
  constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";
  bool is_first = step.removes_prefix;
  for (std::string& token : tokens) {
    if (token == step.unknown) {
      token = step.unknown_surface;
    } else if (!byte_of(token)) {
      const bool has_prefix = is_first && token.starts_with(kSpaceSymbol);
      if (has_prefix) token.erase(0, kSpaceSymbol.size());
      replace_all(token, kSpaceSymbol, " ");
      if (has_prefix && !step.removes_all_leading) is_first = false;
    }
    is_first &= token.empty();
  }
  decode_step(ByteFallbackDecode{}, tokens);
}

}  // namespace

std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens) {
  for (const DecoderStep& step : steps) {
    std::visit([&](const auto& kind) { decode_step(kind, tokens); }, step);
  }
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (steps.empty() && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace sluice::text
