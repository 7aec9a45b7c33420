// What server 0 knows of its workers, without a socket.
#include "ps/net/members.h"

#include <gtest/gtest.h>

#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

// Otherwise a server would end the run when its last worker dies, although that worker may come back.
TEST(Members, TheLastOneThatGoesSaysWhetherAllHaveLeft) {
  Members members(/*now=*/0, /*silence_of_dead=*/100);
  EXPECT_FALSE(members.last_one_left()) << "nobody was there";
  Nanoseconds now = 0;
  for (const bool has_left : {true, false, true}) {
    members.add({.id = WorkerId{0}, .pull = {{}, toy_layout(1)}});
    members.remove(WorkerId{0}, has_left, ++now);
    EXPECT_TRUE(members.empty());
    EXPECT_EQ(members.empty_since(), now);
    EXPECT_EQ(members.last_one_left(), has_left);
  }
}

}  // namespace
}  // namespace sluice::ps::test
