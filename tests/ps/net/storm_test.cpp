// Workers and servers that die at every moment of a step and come back: the run ends, what it has learnt is what the
// pushes that count say, and each sample counts once.
#include "ps/net/storm.h"

namespace sluice::ps::test {
namespace {

TEST(StormTest, WhatIsLearntIsWhatWasCounted) {
  for (const char* policy : {"bsp", "asp", "ssp", "quorum"}) weather({.policy = policy, .events = 8, .seed = 11});
}

TEST(StormTest, SoIsWhatSeveralServersLearn) {
  for (const char* policy : {"bsp", "asp"}) weather({.policy = policy, .events = 10, .seed = 12, .servers = 3});
}

}  // namespace
}  // namespace sluice::ps::test
