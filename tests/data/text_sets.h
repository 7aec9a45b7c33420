// text_sets: what tests of data sets of texts share: a folder with a small tokenizer, and the sets opened in it.
#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/dataset.h"
#include "support/files.h"
#include "text/small_tokenizers.h"

namespace sluice::data {

using Numbers = std::vector<std::int64_t>;

inline Numbers numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

inline std::vector<std::string> names_of(const Fields& fields) {
  std::vector<std::string> names;
  for (const auto& [name, field] : fields) names.push_back(name);
  return names;
}

class TextSets : public testing::Test {
 protected:
  TextSets() { test::spill(folder_ / "tokenizer.json", text::bert_json()); }

  void write(const std::string& name, const std::string& content) const { test::spill(folder_ / name, content); }
  // Of BERT's kind, with the tokens of text/small_tokenizers.h.
  [[nodiscard]] TextOptions options(std::int64_t max_length, std::int64_t stride = 0) const {
    return {.tokenizer = folder_ / "tokenizer.json", .max_length = max_length, .stride = stride, .threads = 2};
  }
  [[nodiscard]] std::shared_ptr<Dataset> open(const std::string& name, const TextOptions& text,
                                              Split split = Split::kTrain) const {
    return open_dataset({.name = name, .path = folder_.path(), .text = text}, split);
  }
  [[nodiscard]] auto opening(const std::string& name, const TextOptions& text, Split split = Split::kTrain) const {
    return [=, this] { static_cast<void>(open(name, text, split)); };
  }

  test::TempDir folder_;
};

inline auto says(const std::string& text) { return testing::ThrowsMessage<DataError>(testing::HasSubstr(text)); }
inline auto refuses(const std::string& text) { return testing::ThrowsMessage<ConfigError>(testing::HasSubstr(text)); }

inline constexpr std::int64_t kCls = 1, kSep = 2, kUn = 3, kAff = 4, kHello = 6, kComma = 7, kA = 8, kB = 10;

}  // namespace sluice::data
