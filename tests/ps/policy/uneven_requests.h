#pragma once

#include <string>

#include "ps/policy/uneven_workers.h"

namespace sluice::ps {

inline UnevenRequest request_of(const std::string& sync, int workers, std::int64_t batch, double example_s,
                                std::int64_t steps = 1000) {
  return {.sync = sync, .workers = workers, .base_batch = batch, .seconds_per_example = {example_s}, .steps = steps};
}

inline UnevenRequest anytime(UnevenRequest request, double limit_s, std::int64_t partitions) {
  request.sync = "amb";
  request.time_limit_s = limit_s;
  request.partitions = partitions;
  return request;
}

inline UnevenRequest exponential(UnevenRequest request, double shift_s, double mean_s) {
  request.induce = "shifted-exponential";
  request.shift_s = shift_s;
  request.mean_s = mean_s;
  return request;
}

}  // namespace sluice::ps
