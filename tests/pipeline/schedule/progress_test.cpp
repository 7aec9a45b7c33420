// Deadlock under ways to communicate: the facts of the reference notes, for which lowering runs which schedule.
#include "pipeline/schedule/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

using ::testing::HasSubstr;

bool runs_with(const Schedule& schedule, int receive_buffers) {
  return !find_deadlock(schedule, ActionIndex(schedule), {.receive_buffers = receive_buffers, .tied = {}});
}

// One message: the sending and the receiving action.
struct Message {
  ActionPosition from;
  ActionPosition to;
};

std::vector<Message> messages_between_devices(const Schedule& schedule, const ActionIndex& index) {
  std::vector<Message> messages;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t i = 0; i < schedule.devices[device].size(); ++i) {
      const ActionPosition here{static_cast<int>(device), static_cast<int>(i)};
      const ActionPosition to = index.receiver(index.at(here));
      if (to && to.device != here.device) messages.push_back({here, to});
    }
  }
  return messages;
}

// A device runs its actions one after the other, and between two of them one group of messages: what the first has made
// together with what the second needs. A group is over when the partner of each message is in the group where it has
// that message, or past it: what one NCCL group per step does.
class FusedGroups {
 public:
  FusedGroups(const Schedule& schedule, const ActionIndex& index) : at_(schedule.devices.size(), 0) {
    for (const auto& actions : schedule.devices) groups_.emplace_back(actions.size() + 1);
    for (const auto& [from, to] : messages_between_devices(schedule, index)) {
      const std::size_t send = group_after(schedule, from);
      const std::size_t receive = unit_begin(schedule, to);
      groups_[static_cast<std::size_t>(from.device)][send].push_back({to.device, receive});
      groups_[static_cast<std::size_t>(to.device)][receive].push_back({from.device, send});
    }
  }

  bool completes() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t device = 0; device < at_.size(); ++device) {
        while (at_[device] < groups_[device].size() && is_over(groups_[device][at_[device]])) {
          ++at_[device];
          moved = true;
        }
      }
    }
    for (std::size_t device = 0; device < at_.size(); ++device) {
      if (at_[device] < groups_[device].size()) return false;
    }
    return true;
  }

 private:
  using Partner = std::pair<int, std::size_t>;  // device, number of its group

  static std::size_t unit_begin(const Schedule& schedule, ActionPosition where) {
    const auto& actions = schedule.devices[static_cast<std::size_t>(where.device)];
    const auto at = static_cast<std::size_t>(where.position);
    return at > 0 && actions[at - 1].overlaps_next ? at - 1 : at;
  }
  static std::size_t group_after(const Schedule& schedule, ActionPosition where) {
    return unit_end(schedule.devices[static_cast<std::size_t>(where.device)], unit_begin(schedule, where));
  }

  [[nodiscard]] bool is_over(const std::vector<Partner>& group) const {
    return std::ranges::all_of(
        group, [&](const Partner& partner) { return at_[static_cast<std::size_t>(partner.first)] >= partner.second; });
  }

  std::vector<std::size_t> at_;
  std::vector<std::vector<std::vector<Partner>>> groups_;  // [device][number]
};

// Whether a queue per (source, target) that carries activations and gradients together is in order on both sides.
bool one_queue_per_pair_is_in_order(const Schedule& schedule, const ActionIndex& index) {
  std::map<std::pair<int, int>, std::vector<Message>> queues;
  for (const auto& message : messages_between_devices(schedule, index))
    queues[{message.from.device, message.to.device}].push_back(message);
  return std::ranges::all_of(queues, [](const auto& entry) {
    return std::ranges::is_sorted(entry.second, {}, [](const Message& message) { return message.to.position; });
  });
}

const std::vector<std::pair<int, int>> kShapes{{2, 4}, {4, 8}, {8, 16}};

TEST(Progress, ARendezvousRunsOnlyGpipe) {
  for (const auto& name : schedule_names()) {
    for (const auto& [p, m] : kShapes)
      EXPECT_EQ(runs_with(make_schedule(name, {.stages = p, .micro_batches = m}), 0), name == "gpipe") << name;
  }
}

TEST(Progress, FusingEachSendWithTheNextReceiveRunsThoseWithOneStageADevice) {
  const std::set<std::string> run{"gpipe", "1f1b", "eager-1f1b", "zb-h1"};
  for (const std::string name :
       {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "interleaved", "looped-bfs", "zb-v", "dualpipe-v"}) {
    for (const auto& [p, m] : kShapes) {
      const Schedule schedule = make_schedule(name, {.stages = p, .micro_batches = m});
      EXPECT_EQ(FusedGroups(schedule, ActionIndex(schedule)).completes(), run.contains(name)) << name << " " << p;
    }
  }
}

TEST(Progress, OneQueuePerPairOfDevicesIsOutOfOrderForTheVs) {
  const auto in_order = [](const std::string& name, int p, int m) {
    const Schedule schedule = make_schedule(name, {.stages = p, .micro_batches = m});
    return one_queue_per_pair_is_in_order(schedule, ActionIndex(schedule));
  };
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1"}) {
    for (const auto& [p, m] : kShapes) EXPECT_TRUE(in_order(name, p, m)) << name << " " << p;
  }
  for (const auto& [p, m] : std::vector<std::pair<int, int>>{{4, 8}, {4, 16}, {8, 16}, {8, 32}}) {
    EXPECT_FALSE(in_order("zb-v", p, m)) << p;
    EXPECT_FALSE(in_order("dualpipe-v", p, m)) << p;
  }
}

TEST(Progress, TheNeededBuffersAreTheLeastThatRun) {
  test::for_each_shape(5, 12, 3, [](const test::NamedShape& shape) {
    const Schedule schedule = shape.make();
    const int needed = needed_receive_buffers(schedule);
    EXPECT_TRUE(runs_with(schedule, needed)) << shape.text();
    EXPECT_TRUE(runs_with(schedule, needed + 1)) << shape.text();
    EXPECT_TRUE(needed == 0 || !runs_with(schedule, needed - 1)) << shape.text();
    const bool is_gpipe = shape.name == "gpipe" || (shape.name == "looped-bfs" && shape.virtual_stages() == 1);
    if (shape.shape.stages > 1 && shape.shape.micro_batches >= shape.shape.stages) {
      EXPECT_EQ(needed == 0, is_gpipe) << shape.text();
    }
    const bool is_even = shape.name != "interleaved" || shape.shape.micro_batches % shape.shape.stages == 0;
    if (shape.name != "looped-bfs" && is_even) {
      EXPECT_LE(needed, 1) << shape.text();
    }
  });
}

TEST(Progress, TheCycleOfARendezvousIsPrinted) {
  const Schedule schedule = make_1f1b({.stages = 2, .micro_batches = 3});
  try {
    validate(schedule, {.transport = {.receive_buffers = 0, .tied = {}}});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("'rendezvous': the devices wait for each other for ever: 0F1 is done but has no "
                          "receive buffer before 1F1, which is after 1B0 on device 1, 1B0 is done but has "
                          "no receive buffer before 0B0, which is after 0F1 on device 0; expected another "
                          "order, or more receive buffers than 0"));
  }
  EXPECT_NO_THROW(validate(schedule, {.transport = {.receive_buffers = 1, .tied = {}}}));
}

}  // namespace
}  // namespace sluice::pipeline
