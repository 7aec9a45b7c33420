#include "data/subset.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"
#include "data/sampler.h"
#include "data/squad_dataset.h"

namespace sluice::data {
namespace {

class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices, DatasetInfo info)
      : whole_(std::move(whole)), indices_(std::move(indices)), info_(std::move(info)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(indices_); }
  [[nodiscard]] bool is_in_memory() const override { return whole_->is_in_memory(); }
  void read(std::int64_t index, std::span<std::uint8_t> sample) const override {
    whole_->read(index_in_whole(index), sample);
  }
  [[nodiscard]] Fields read_fields(std::span<const std::int64_t> ids) const override {
    std::vector<std::int64_t> in_whole;
    for (const std::int64_t id : ids) in_whole.push_back(index_in_whole(id));
    return whole_->read_fields(in_whole);
  }
  [[nodiscard]] std::vector<int> lengths() const override {
    const std::vector<int> all = whole_->lengths();
    std::vector<int> own;
    if (all.empty()) return own;
    for (const std::int64_t index : indices_) own.push_back(all[static_cast<std::size_t>(index)]);
    return own;
  }
  [[nodiscard]] const QuestionSet* question_set() const override { return whole_->question_set(); }
  [[nodiscard]] std::int64_t sample_in_whole(std::int64_t index) const override {
    return whole_->sample_in_whole(index_in_whole(index));
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return whole_->target(index_in_whole(index)); }
  [[nodiscard]] std::vector<std::uint8_t> encoded(std::int64_t index) const override {
    return whole_->encoded(index_in_whole(index));
  }
  [[nodiscard]] std::string file_of(std::int64_t index) const override {
    return whole_->file_of(index_in_whole(index));
  }

 private:
  [[nodiscard]] std::int64_t index_in_whole(std::int64_t index) const { return indices_[checked(index)]; }

  const std::shared_ptr<const Dataset> whole_;
  const std::vector<std::int64_t> indices_;
  const DatasetInfo info_;
};

// What must stay together, numbered from 0: the sample itself, or the question of a window.
std::vector<std::int64_t> groups_of(const Dataset& samples) {
  std::vector<std::int64_t> groups(static_cast<std::size_t>(samples.size()));
  std::iota(groups.begin(), groups.end(), 0);
  const QuestionSet* const questions = samples.question_set();
  if (questions == nullptr) return groups;
  std::map<std::int64_t, std::int64_t> numbers;  // by question
  for (std::int64_t& group : groups) {
    const std::int64_t question = questions->question_of(samples.sample_in_whole(group));
    group = numbers.try_emplace(question, std::ssize(numbers)).first->second;
  }
  return groups;
}

}  // namespace

std::unique_ptr<Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices,
                                DatasetInfo info) {
  return std::make_unique<Subset>(std::move(whole), std::move(indices), std::move(info));
}

std::unique_ptr<Dataset> limited(std::unique_ptr<Dataset> whole, std::int64_t limit) {
  const std::int64_t all = whole->size();
  if (limit >= all) return whole;
  const std::vector<std::int64_t> groups = groups_of(*whole);
  while (limit > 0 && limit < all && groups[limit - 1] == groups[limit]) ++limit;
  const bool is_spread = whole->info().is_sorted_by_class;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < limit; ++i) indices.push_back(is_spread ? i * all / limit : i);
  DatasetInfo info = whole->info();
  return subset(std::move(whole), std::move(indices), std::move(info));
}

HeldOut hold_out(const std::shared_ptr<const Dataset>& whole, double part) {
  constexpr std::uint64_t kSeed = 20'240'229;  // arbitrary; never change it, or runs cannot be compared
  const std::vector<std::int64_t> groups = groups_of(*whole);
  const std::int64_t count = groups.empty() ? 0 : std::ranges::max(groups) + 1;
  const std::int64_t held = std::max<std::int64_t>(std::llround(part * static_cast<double>(count)), 1);
  if (held >= count) {
    throw ConfigError("data.validation = ", part, " holds ", held, " of ", count, " ",
                      whole->question_set() == nullptr ? "samples" : "questions",
                      " out, and none is left to train with; set it lower or data.limit higher");
  }
  const std::vector<std::int64_t> order = epoch_order(kSeed, /*epoch=*/0, count);
  std::vector<bool> is_held(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < held; ++i) is_held[order[i]] = true;
  std::vector<std::int64_t> kept, out;
  for (std::int64_t i = 0; i < whole->size(); ++i) (is_held[groups[i]] ? out : kept).push_back(i);
  DatasetInfo info = whole->info();
  info.split = Split::kTest;
  return {subset(whole, std::move(kept), whole->info()), subset(whole, std::move(out), std::move(info))};
}

}  // namespace sluice::data
