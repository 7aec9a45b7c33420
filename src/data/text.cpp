#include "data/text.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/error.h"
#include "core/rng.h"
#include "data/file.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kByteTokens = 256;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{4} << 30;
constexpr std::int64_t kLongestContext = 1'000'000;
constexpr std::int64_t kTestPart = 10;  // the test split is one of this many parts

void check_context(std::int64_t context) {
  if (context < 1 || context > kLongestContext) {
    throw ConfigError("model.context = ", context, "; sequences have 1 to ", kLongestContext, " tokens");
  }
}

class TextDataset final : public Dataset {
 public:
  TextDataset(DatasetInfo info, std::vector<std::uint8_t> text) : info_(std::move(info)), text_(std::move(text)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return (std::ssize(text_) - 1) / info_.context; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  void read(std::int64_t index, std::span<std::uint8_t> tokens) const override {
    check(std::ssize(tokens) == info_.sample_bytes(), "a buffer with the size of one sequence");
    std::copy_n(text_.begin() + checked(index) * info_.context, info_.sample_bytes(), tokens.begin());
  }

 private:
  DatasetInfo info_;
  std::vector<std::uint8_t> text_;
};

class ToyDataset final : public Dataset {
 public:
  ToyDataset(const ToyOptions& options, Split split)
      : size_(split == Split::kTrain ? options.samples : std::max<std::int64_t>(1, options.samples / 5)),
        key_(derive_key(options.seed, hash_name(split == Split::kTrain ? "toy/train" : "toy/test"))),
        successors_(draw_chain(derive_key(options.seed, hash_name("toy/chain")))) {
    info_ = {
        .name = "toy", .split = split, .classes = kToyTokens, .kind = SampleKind::kTokens, .context = options.context};
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }

  void read(std::int64_t index, std::span<std::uint8_t> tokens) const override {
    check(std::ssize(tokens) == info_.sample_bytes(), "a buffer with the size of one sequence");
    RngStream rng(derive_key(key_, static_cast<std::uint64_t>(checked(index))));
    auto token = static_cast<std::uint8_t>(rng.below(kToyTokens));
    for (std::uint8_t& out : tokens) {
      out = token;
      constexpr std::array<std::size_t, 8> kWhich{0, 0, 0, 0, 1, 1, 2, 3};
      token = successors_[token][kWhich[rng.below(kWhich.size())]];
    }
  }

 private:
  using Chain = std::array<std::array<std::uint8_t, 4>, kToyTokens>;

  static Chain draw_chain(std::uint64_t key) {
    RngStream rng(key);
    Chain chain{};
    for (auto& successors : chain) {
      std::array<std::uint8_t, kToyTokens> tokens{};
      std::iota(tokens.begin(), tokens.end(), std::uint8_t{0});
      for (std::size_t i = 0; i < successors.size(); ++i) {
        std::swap(tokens[i], tokens[i + rng.below(tokens.size() - i)]);
        successors[i] = tokens[i];
      }
    }
    return chain;
  }

  DatasetInfo info_;
  std::int64_t size_;
  std::uint64_t key_;
  Chain successors_;
};

}  // namespace

std::unique_ptr<Dataset> open_text(const std::filesystem::path& file, std::int64_t context, Split split) {
  check_context(context);
  if (file.empty()) throw ConfigError("data.path is empty, but data.name = \"text\" needs one; set it to a text file");
  std::vector<std::uint8_t> text = read_bytes(file, kMaxTextBytes);
  const std::int64_t in_test = std::ssize(text) / kTestPart, in_train = std::ssize(text) - in_test;
  if (in_test < context + 1) {
    throw DataError(file.native(), ": ", text.size(), " bytes found, of which the last tenth is the test split; ",
                    "a sequence of model.context = ", context, " needs ", kTestPart * (context + 1),
                    "; set a smaller model.context or take a longer text");
  }
  if (split == Split::kTrain) {
    text.resize(static_cast<std::size_t>(in_train));
  } else {
    text.erase(text.begin(), text.begin() + in_train);
  }
  return std::make_unique<TextDataset>(
      DatasetInfo{
          .name = "text", .split = split, .classes = kByteTokens, .kind = SampleKind::kTokens, .context = context},
      std::move(text));
}

std::unique_ptr<Dataset> make_toy(const ToyOptions& options, Split split) {
  check_context(options.context);
  if (options.samples < 1) throw ConfigError("data.samples = ", options.samples, "; set at least 1");
  return std::make_unique<ToyDataset>(options, split);
}

}  // namespace sluice::data
