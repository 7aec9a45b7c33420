// Hosts whose name comes late, and those with several addresses.
#include "comm/socket_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/names.h"
#include "comm/ranks.h"
#include "core/error.h"
#include "support/files.h"

namespace sluice::comm {
namespace {

using sluice::test::error_of;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kLong{20000};
constexpr const char* kOfNobody = "192.0.2.1";  // for documentation

TEST(AddressesOf, ANameThatComesLateIsAskedForAgain) {
  test::set_host("late.test", {"127.0.0.3", "127.0.0.3", "::1"}, /*unknown_for=*/3);
  EXPECT_THAT(addresses_of("late.test", kLong), ElementsAre("127.0.0.3", "::1"));
  test::set_host("never.test", {"127.0.0.3"}, /*unknown_for=*/1000);
  EXPECT_THAT(error_of<ConfigError>([] { return addresses_of("never.test", milliseconds(500), "ps.address"); }),
              AllOf(HasSubstr("the host 'never.test' is not known"), HasSubstr("check ps.address")));
  EXPECT_THAT(addresses_of("127.0.0.1"), ElementsAre("127.0.0.1"));
}

TEST(ListenOn, TakesTheFirstAddressThatThisMachineHas) {
  test::set_host("own.test", {kOfNobody, "127.0.0.3", "127.0.0.1"});
  const int port = test::free_port();
  const int fd = listen_on("own.test", port);
  EXPECT_EQ(own_address(fd).address, "127.0.0.3");
  EXPECT_THAT(error_of<ConfigError>([&] { return listen_on("own.test", port); }),
              HasSubstr("on own.test (127.0.0.3) is in use"))
      << "another address would keep two runs apart that were to meet";
  ::close(fd);
  test::set_host("other.test", {kOfNobody, "203.0.113.1"});
  EXPECT_THAT(error_of<ConfigError>([&] { return listen_on("other.test", port); }),
              HasSubstr("other.test (192.0.2.1, 203.0.113.1) is no address of this machine"));
}

TEST(FindListener, TriesAllAddresses) {
  test::set_host("several.test", {"127.0.0.3", "127.0.0.4", "127.0.0.1"}, /*unknown_for=*/1);
  const int port = test::free_port();
  FoundListener found = find_listener("several.test", port, milliseconds(500));
  EXPECT_EQ(found.address, "");
  EXPECT_THAT(found.tried, ElementsAre("127.0.0.3", "127.0.0.4", "127.0.0.1"));
  const int fd = listen_on("127.0.0.1", port);
  found = find_listener("several.test", port, kLong);
  EXPECT_EQ(found.address, "127.0.0.1");
  ::close(fd);
}

}  // namespace
}  // namespace sluice::comm
