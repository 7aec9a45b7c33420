#include "storage/safetensors_sax.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/concat.h"
#include "core/error.h"
#include "storage/safetensors_header.h"

namespace sluice::storage {
namespace {

constexpr std::size_t kMaxMessage = 300;

class HeaderSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  [[nodiscard]] RawHeader take_header() { return std::move(header_); }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool /*value*/) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return unexpected("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return unexpected("a number that is not a 64-bit integer");
  }
  bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (state_ != State::kNumbers) return unexpected("a number");
    if (value > kMax) return unexpected("a number above 2^63 - 1");
    (key_ == "shape" ? entry_.shape : entry_.offsets).push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (state_ != State::kTensor || key_ != "dtype") return unexpected("a string");
    entry_.dtype = value;
    return true;
  }

  bool key(string_t& name) override {
    key_ = name;
    auto& seen = state_ == State::kTop ? tensor_names_ : inner_keys_;
    if (!seen.insert(name).second) return fail(concat("duplicate key ", quoted_name(name), in_tensor()));
    if (state_ == State::kTensor && name != "dtype" && name != "shape" && name != "data_offsets") {
      return fail(concat("unknown key ", quoted_name(name), in_tensor(), ", expected dtype, shape, data_offsets"));
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (state_ == State::kStart) {
      state_ = State::kTop;
      return true;
    }
    if (state_ != State::kTop) return unexpected("an object");
    inner_keys_.clear();
    state_ = key_ == "__metadata__" ? State::kMetadata : State::kTensor;
    if (state_ == State::kTensor) entry_ = {.name = key_, .dtype = {}, .shape = {}, .offsets = {}};
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor) {
      for (const auto* needed : {"dtype", "shape", "data_offsets"}) {
        if (!inner_keys_.contains(needed)) return fail(concat("no ", needed, in_tensor()));
      }
      header_.entries.push_back(std::move(entry_));
    }
    state_ = State::kTop;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (state_ != State::kTensor || key_ == "dtype") return unexpected("an array");
    state_ = State::kNumbers;
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    return fail(concat("its header is not JSON at byte ", position, ": ", error.what()));
  }

 private:
  // kNumbers: inside the array `shape` or `data_offsets` (see key_).
  enum class State { kStart, kTop, kMetadata, kTensor, kNumbers };

  [[nodiscard]] std::string in_tensor() const {
    if (state_ == State::kMetadata) return " in __metadata__";
    if (state_ == State::kTensor || state_ == State::kNumbers) return concat(" in tensor ", quoted_name(entry_.name));
    return " in the header";
  }

  bool unexpected(std::string_view what) {
    const std::string_view expected = state_ == State::kStart || state_ == State::kTop ? "an object"
                                      : state_ == State::kMetadata                     ? "a string"
                                      : state_ == State::kNumbers                      ? "an unsigned number"
                                      : key_ == "dtype"                                ? "a string"
                                                                                       : "an array";
    return fail(concat(what, " at key ", quoted_name(key_), in_tensor(), ", expected ", expected));
  }

  bool fail(std::string problem) {
    if (problem.size() > kMaxMessage) problem = problem.substr(0, kMaxMessage) + "...";
    problem_ = std::move(problem);
    return false;
  }

  State state_ = State::kStart;
  std::string key_;
  RawTensorEntry entry_;
  std::set<std::string> tensor_names_;
  std::set<std::string> inner_keys_;
  RawHeader header_;
  std::string problem_;
};

}  // namespace

RawHeader parse_raw_header(std::string_view text) {
  HeaderSax sax;
  if (!nlohmann::json::sax_parse(text, &sax)) throw CheckpointError(sax.problem());
  return sax.take_header();
}

}  // namespace sluice::storage
