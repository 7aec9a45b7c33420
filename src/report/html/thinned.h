// thinned: a series of any length as at most about two thousand points that keep every peak: each bucket of consecutive
// values keeps the first, smallest, largest and last. Full buckets are merged in pairs, so memory does not grow.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::report {

struct Point {
  double step = 0;
  double time_s = 0;
  double value = 0;

  bool operator==(const Point&) const = default;
};

class Thinned {
 public:
  // buckets: maximum number, at least 2. A long series uses at least half of them.
  explicit Thinned(std::size_t buckets = 480) : most_(buckets) {}

  // Counts a value that is not finite, but does not draw it.
  void add(const Point& point);
  [[nodiscard]] std::vector<Point> points() const;
  [[nodiscard]] bool empty() const { return buckets_.empty(); }
  // {"step": [...], "time": [...], "value": [...]}, with seven digits.
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Placed {
    Point point;
    std::int64_t at = 0;
  };
  struct Bucket {
    Placed first, least, greatest, last;
    std::int64_t count = 0;

    void add(const Placed& value);
    void add(const Bucket& later);
  };

  std::size_t most_;
  std::int64_t width_ = 1;
  std::int64_t added_ = 0;
  std::int64_t not_finite_ = 0;
  std::vector<Bucket> buckets_;
};

class BucketMeans {
 public:
  explicit BucketMeans(std::size_t buckets = 240) : most_(buckets) {}

  void add(double step, double time_s, const std::map<std::string, double>& values);
  [[nodiscard]] bool empty() const { return buckets_.empty(); }
  // {"step": [...], "time": [...], NAME: [...], ...}. A value missing in a step counts as 0.
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Bucket {
    double step = 0, time_s = 0;
    std::map<std::string, double> sums;
    std::int64_t count = 0;

    void add(const Bucket& other);
  };

  std::size_t most_;
  std::int64_t width_ = 1;
  std::vector<Bucket> buckets_;
};

// Rounds to seven digits, more than a screen shows; the report is a third smaller.
[[nodiscard]] double brief(double value);

}  // namespace sluice::report
