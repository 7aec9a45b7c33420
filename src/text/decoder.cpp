#include "text/decoder.h"

#include <utility>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

using Tokens = std::vector<std::string>;

void replace(std::string& text, const Pattern& what, std::string_view by) {
  Pattern::Scratch scratch;
  std::string result;
  std::size_t copied = 0;
  what.for_each(text, scratch, [&](std::size_t begin, std::size_t end) {
    result.append(text, copied, begin - copied).append(by);
    copied = end;
  });
  if (copied > 0 || !result.empty()) text = result.append(text, copied);
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
  static const std::vector<std::pair<Pattern, std::string>> kReplacements = [] {
    std::vector<std::pair<Pattern, std::string>> made;
    for (const auto& [what, by] : std::initializer_list<std::pair<const char*, const char*>>{{" .", "."},
                                                                                             {" ?", "?"},
                                                                                             {" !", "!"},
                                                                                             {" ,", ","},
                                                                                             {" ' ", "'"},
                                                                                             {" n't", "n't"},
                                                                                             {" 'm", "'m"},
                                                                                             {" do not", " don't"},
                                                                                             {" 's", "'s"},
                                                                                             {" 've", "'ve"},
                                                                                             {" 're", "'re"}}) {
      made.emplace_back(Pattern::literal(what), by);
    }
    return made;
  }();
  for (const auto& [what, by] : kReplacements) replace(text, what, by);
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
    replace(tokens[i], step.replacement, i == 0 && step.removes_first ? "" : " ");
  }
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
    if (const auto byte = byte_of_token(token)) {
      bytes.push_back(static_cast<char>(*byte));
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
  for (std::string& token : tokens) replace(token, step.pattern, step.content);
}

void decode_step(const SentencePieceDecode& step, Tokens& tokens) {
  static const Pattern kSpace = Pattern::literal(kSpaceSymbol);
  bool is_first = step.removes_prefix;
  for (std::string& token : tokens) {
    if (token == step.unknown) {
      token = step.unknown_surface;
    } else if (!byte_of_token(token)) {
      const bool has_prefix = is_first && token.starts_with(kSpaceSymbol);
      if (has_prefix) token.erase(0, kSpaceSymbol.size());
      replace(token, kSpace, " ");
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
