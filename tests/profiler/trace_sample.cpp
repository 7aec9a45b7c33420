// Writes two ranks' traces of steps that it makes up, all times whole microseconds, and prints what the breakdown says
// of them: for trace_readers_test.py, which lets other people's readers read them.
//
//   trace_sample FOLDER SEED
#include <zlib.h>

#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/breakdown.h"
#include "profiler/trace.h"

namespace sluice::profiler {
namespace {

constexpr Nanoseconds kUs = 1000;
constexpr int kSteps = 4;

// One stage and its replica in another process: forwards and backwards with gaps, sums that overlap the backwards.
StepSpans make_step(std::mt19937& random, std::int64_t number, Nanoseconds begin) {
  const auto some = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random) * kUs; };
  StepSpans spans{.step = number, .begin = begin};
  StepSpans::Slot& slot = spans.slots.emplace_back(StepSpans::Slot{ReplicaId{0}, DeviceId{0}, {StageId{0}}, {}});
  Nanoseconds at = begin + some(5, 20);
  const auto work = [&](Phase phase, int micro_batch) {
    const Nanoseconds end = at + some(20, 80);
    slot.spans.push_back({phase, MicroBatchId{micro_batch}, at, end, StageId{0}});
    at = end + some(0, 4);
  };
  for (int i = 0; i < 3; ++i) work(Phase::kForward, i);
  for (int i = 0; i < 3; ++i) work(Phase::kBackward, i);
  Nanoseconds sum = slot.spans.back().begin + some(1, 5);
  for (int bucket = 0; bucket < 3; ++bucket) {
    const Nanoseconds end = sum + some(10, 40);
    spans.buckets.push_back({StageId{0}, bucket, sum, sum + some(0, 5), end});
    sum = end + some(0, 9);
  }
  at = std::max(at, sum) + some(1, 3);
  slot.spans.push_back({Phase::kOptimizer, kNoMicroBatch, at, at + some(5, 9), StageId{0}});
  spans.end = slot.spans.back().end + some(1, 6);
  return spans;
}

nlohmann::json expected(const std::vector<TracedStep>& steps) {
  Nanoseconds computing = 0, sums = 0, hidden = 0;
  for (const TracedStep& step : steps) {
    const SlotBreakdown slot = break_down(step.spans).slots.at(0);
    computing += slot.forward() + slot.backward() + slot[Part::kOptimizer];
    sums += slot.all_reduce;
    hidden += slot.all_reduce - slot[Part::kAllReduce] - slot[Part::kSkew];
  }
  return {{"computing_us", computing / kUs}, {"sums_us", sums / kUs}, {"hidden_us", hidden / kUs}};
}

void write(const std::string& file, const std::string& text) {
  const gzFile out = gzopen(file.c_str(), "wb");
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
}

void run(const std::string& folder, unsigned seed) {
  std::mt19937 random(seed);
  nlohmann::json answer = nlohmann::json::array();
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<TracedStep> steps;
    Nanoseconds at = rank * 7 * kUs;
    for (int step = 0; step < kSteps; ++step) {
      steps.push_back({make_step(random, step, at), {}});
      at = steps.back().spans.end;
    }
    write(folder + "/trace.rank" + std::to_string(rank) + ".json.gz",
          trace_text({.rank = rank, .processes = 2, .host = "a", .pid = 100 + 10 * rank, .backend = "gloo"}, steps));
    steps.pop_back();  // HolisticTraceAnalysis leaves the last one out
    answer.push_back(expected(steps));
  }
  std::cout << answer.dump() << std::endl;
}

}  // namespace
}  // namespace sluice::profiler

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  sluice::profiler::run(argv[1], static_cast<unsigned>(std::stoul(argv[2])));
  return 0;
}
