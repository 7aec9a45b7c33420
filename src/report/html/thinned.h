// thinned: a series of any length as at most about two thousand points, without losing a peak: buckets of as many
// values in a row, of each the first, the least, the greatest and the last. When the buckets are used up, neighbours
// are merged. Memory does not grow with the series. Beside it means by bucket, for what is stacked. Values.
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
  // buckets: at most so many, and at least half of them once there are more values. At least 2.
  explicit Thinned(std::size_t buckets = 480) : most_(buckets) {}

  // A value that is not finite is counted, and not drawn.
  void add(const Point& point);
  [[nodiscard]] std::vector<Point> points() const;  // in the order in which they came
  [[nodiscard]] bool empty() const { return buckets_.empty(); }
  // {"step": [...], "time": [...], "value": [...]}, numbers to seven digits.
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
  std::int64_t width_ = 1;  // values of a bucket
  std::int64_t added_ = 0;
  std::int64_t not_finite_ = 0;
  std::vector<Bucket> buckets_;
};

// Means of several values at once, each over the steps of a bucket.
class BucketMeans {
 public:
  explicit BucketMeans(std::size_t buckets = 240) : most_(buckets) {}

  void add(double step, double time_s, const std::map<std::string, double>& values);
  [[nodiscard]] bool empty() const { return buckets_.empty(); }
  // {"step": [...], "time": [...], NAME: [...], ...}; a value that a step does not have was 0 in it.
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  struct Bucket {
    double step = 0, time_s = 0;  // sums
    std::map<std::string, double> sums;
    std::int64_t count = 0;

    void add(const Bucket& other);
  };

  std::size_t most_;
  std::int64_t width_ = 1;
  std::vector<Bucket> buckets_;
};

// To seven digits, which is more than a screen shows: a report is a third smaller.
[[nodiscard]] double brief(double value);

}  // namespace sluice::report
