// in_order: work on several threads whose results are taken in order.
#pragma once

#include <functional>
#include <string>

namespace sluice::data {

using Finish = std::function<void()>;
using Job = std::function<Finish()>;

// Takes jobs from next() until it returns null and runs them on `threads` threads (0: one for each core). What a job
// returns runs in the order of the jobs. next(), progress() and these calls never run at the same time. progress(): for
// a progress line. Throws the exception of the first job that has one, after the calls of all jobs before it.
void in_order(int threads, const std::function<Job()>& next, const std::function<std::string()>& progress);

}  // namespace sluice::data
