// How fast a tokenizer is on one core: `bench_tokenizer FILE TEXTS SECONDS` encodes each line of TEXTS, again and
// again, and prints one JSON line with megabytes of text a second. bench/tokenizer.py runs it beside `tokenizers`.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "text/tokenizer.h"

namespace {

int run(const char* file, const char* texts, double seconds) {
  const auto tokenizer = sluice::text::open_tokenizer(file);
  std::ifstream stream(texts);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  using Clock = std::chrono::steady_clock;
  sluice::text::Encoding encoding;
  double best = 0;
  std::size_t tokens = 0;
  const auto begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    std::size_t bytes = 0;
    tokens = 0;
    const auto start = Clock::now();
    for (const std::string& line : lines) {
      tokenizer->encode(line, {}, true, encoding);
      bytes += line.size();
      tokens += encoding.ids.size();
    }
    best = std::max(best, static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::printf("{\"mb_per_s\": %.3f, \"tokens\": %zu}\n", best / 1e6, tokens);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return std::fprintf(stderr, "usage: bench_tokenizer FILE TEXTS SECONDS\n"), 2;
  try {
    return run(words[1], words[2], std::stod(words[3]));
  } catch (const sluice::Error& error) {
    return std::fprintf(stderr, "%s\n", error.what()), static_cast<int>(error.exit_code());
  }
}
