#include "data/subset.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/sampler.h"

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

}  // namespace

std::unique_ptr<Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices,
                                DatasetInfo info) {
  return std::make_unique<Subset>(std::move(whole), std::move(indices), std::move(info));
}

std::unique_ptr<Dataset> limited(std::unique_ptr<Dataset> whole, std::int64_t limit) {
  const std::int64_t all = whole->size();
  if (limit >= all) return whole;
  const bool is_spread = whole->info().is_sorted_by_class;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < limit; ++i) indices.push_back(is_spread ? i * all / limit : i);
  DatasetInfo info = whole->info();
  return subset(std::move(whole), std::move(indices), std::move(info));
}

HeldOut hold_out(const std::shared_ptr<const Dataset>& whole, double part) {
  constexpr std::uint64_t kSeed = 20'240'229;  // arbitrary; never change it, or runs cannot be compared
  const std::int64_t size = whole->size();
  const std::int64_t held = std::max<std::int64_t>(std::llround(part * static_cast<double>(size)), 1);
  if (held >= size) {
    throw ConfigError("data.validation = ", part, " holds ", held, " of ", size,
                      " samples out, and none is left to train with; set it lower or data.limit higher");
  }
  std::vector<std::int64_t> out = epoch_order(kSeed, /*epoch=*/0, size);
  std::vector<std::int64_t> kept(out.begin() + held, out.end());
  out.resize(static_cast<std::size_t>(held));
  std::ranges::sort(out);
  std::ranges::sort(kept);
  DatasetInfo info = whole->info();
  info.split = Split::kTest;
  return {subset(whole, std::move(kept), whole->info()), subset(whole, std::move(out), std::move(info))};
}

}  // namespace sluice::data
