#include "report/html/thinned.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace sluice::report {
namespace {

template <typename Bucket>
void merge_pairs(std::vector<Bucket>& buckets) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < buckets.size(); i += 2) {
    Bucket merged = buckets[i];
    if (i + 1 < buckets.size()) merged.add(buckets[i + 1]);
    buckets[kept++] = merged;
  }
  buckets.resize(kept);
}

// Returns the bucket for the next value: the last one, or a new one if that has `width` values. At `most` buckets,
// neighbours are merged and `width` doubles.
template <typename Bucket>
Bucket& open_bucket(std::vector<Bucket>& buckets, std::size_t most, std::int64_t& width) {
  const auto is_full = [&] { return buckets.empty() || buckets.back().count >= width; };
  if (is_full() && buckets.size() >= most) {
    merge_pairs(buckets);
    width *= 2;
  }
  if (is_full()) buckets.emplace_back();
  return buckets.back();
}

}  // namespace

double brief(double value) {
  if (!std::isfinite(value)) return value;
  std::array<char, 40> text{};
  (void)std::snprintf(text.data(), text.size(), "%.7g", value);
  return std::strtod(text.data(), nullptr);
}

void Thinned::Bucket::add(const Placed& value) {
  if (count++ == 0) first = least = greatest = value;
  if (value.point.value < least.point.value) least = value;
  if (value.point.value > greatest.point.value) greatest = value;
  last = value;
}

void Thinned::Bucket::add(const Bucket& later) {
  if (later.least.point.value < least.point.value) least = later.least;
  if (later.greatest.point.value > greatest.point.value) greatest = later.greatest;
  last = later.last;
  count += later.count;
}

void Thinned::add(const Point& point) {
  if (!std::isfinite(point.value) || !std::isfinite(point.step) || !std::isfinite(point.time_s)) {
    ++not_finite_;
    return;
  }
  open_bucket(buckets_, most_, width_).add(Placed{point, added_++});
}

std::vector<Point> Thinned::points() const {
  std::vector<Point> points;
  for (const Bucket& bucket : buckets_) {
    std::array<const Placed*, 4> placed{&bucket.first, &bucket.least, &bucket.greatest, &bucket.last};
    std::ranges::sort(placed, {}, [](const Placed* one) { return one->at; });
    std::int64_t before = -1;
    for (const Placed* one : placed) {
      if (one->at != before) points.push_back(one->point);
      before = one->at;
    }
  }
  return points;
}

nlohmann::ordered_json Thinned::json() const {
  auto steps = nlohmann::ordered_json::array(), times = steps, values = steps;
  for (const Point& point : points()) {
    steps.push_back(brief(point.step));
    times.push_back(brief(point.time_s));
    values.push_back(brief(point.value));
  }
  nlohmann::ordered_json series{{"step", steps}, {"time", times}, {"value", values}, {"of", added_}};
  if (not_finite_ > 0) series["not_finite"] = not_finite_;
  return series;
}

void BucketMeans::Bucket::add(const Bucket& other) {
  step += other.step;
  time_s += other.time_s;
  count += other.count;
  for (const auto& [name, sum] : other.sums) sums[name] += sum;
}

void BucketMeans::add(double step, double time_s, const std::map<std::string, double>& values) {
  open_bucket(buckets_, most_, width_).add(Bucket{.step = step, .time_s = time_s, .sums = values, .count = 1});
}

nlohmann::ordered_json BucketMeans::json() const {
  std::set<std::string> names;
  for (const Bucket& bucket : buckets_) {
    for (const auto& [name, sum] : bucket.sums) names.insert(name);
  }
  nlohmann::ordered_json table{{"step", nlohmann::ordered_json::array()}, {"time", nlohmann::ordered_json::array()}};
  for (const std::string& name : names) table[name] = nlohmann::ordered_json::array();
  for (const Bucket& bucket : buckets_) {
    const auto count = static_cast<double>(bucket.count);
    table["step"].push_back(brief(bucket.step / count));
    table["time"].push_back(brief(bucket.time_s / count));
    for (const std::string& name : names) {
      const auto found = bucket.sums.find(name);
      table[name].push_back(found == bucket.sums.end() ? 0.0 : brief(found->second / count));
    }
  }
  return table;
}

}  // namespace sluice::report
