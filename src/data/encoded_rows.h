// encoded_rows: token ids in memory, two or four bytes each, and rows of them as padded tensors. Threads: append() and
// the like one at a time; reading is const.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/fields.h"
#include "data/text_options.h"
#include "text/encoding.h"
#include "text/tokenizer.h"

namespace sluice::data {

class TokenArray {
 public:
  explicit TokenArray(std::int64_t vocabulary) : is_wide_(vocabulary > 65536) {}

  void append(std::span<const text::TokenId> ids);
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(is_wide_ ? wide_.size() : narrow_.size());
  }
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const;

 private:
  bool is_wide_;
  std::vector<std::uint16_t> narrow_;
  std::vector<std::uint32_t> wide_;
};

// Encodings of texts.
class EncodedRows {
 public:
  explicit EncodedRows(std::int64_t vocabulary) : ids_(vocabulary) {}

  void append(const text::Encoding& encoding);
  [[nodiscard]] std::int64_t size() const { return std::ssize(begins_) - 1; }
  [[nodiscard]] std::int64_t length(std::int64_t row) const { return begins_[row + 1] - begins_[row]; }
  [[nodiscard]] std::vector<int> lengths() const;
  [[nodiscard]] std::int64_t begin(std::int64_t row) const { return begins_[row]; }  // tokens of the rows before
  [[nodiscard]] bool has_types() const { return has_types_; }                        // a type is not 0

  // [rows.size(), width]: inputs, types if there are any, and mask if a row is padded, or always (TextOptions). Width:
  // that of the longest row, or max_length if they are padded to it.
  [[nodiscard]] Fields stack(std::span<const std::int64_t> rows, const TextOptions& options, std::int64_t pad_id) const;
  // What stack() gives.
  [[nodiscard]] std::vector<FieldInfo> fields() const;

 private:
  TokenArray ids_;
  std::vector<std::uint8_t> types_;
  std::vector<std::int64_t> begins_{0};
  bool has_types_ = false;
};

// [n] int64, or of another type.
[[nodiscard]] at::Tensor column(std::int64_t n, const std::function<std::int64_t(std::int64_t)>& value_of);
[[nodiscard]] at::Tensor number_column(std::int64_t n, const std::function<double(std::int64_t)>& value_of);

// The tokenizer's padding token; 0 if it has none.
[[nodiscard]] std::int64_t padding_id(const text::Tokenizer& tokenizer);

}  // namespace sluice::data
