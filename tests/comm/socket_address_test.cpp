// Host names that appear late or have several addresses.
#include "comm/socket_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/names.h"
#include "comm/ranks.h"
#include "comm/wake_up.h"
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
  EXPECT_THAT(
      error_of<ConfigError>([] { return addresses_of("never.test", milliseconds(500), "ps.address"); }),
      AllOf(HasSubstr("cannot resolve the host name 'never.test' ("), HasSubstr(") within 0.5 s; check ps.address")));
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
              HasSubstr("other.test (192.0.2.1, 203.0.113.1) is not an address of this machine"));
}

// A name server may still have the record of a machine that had the name before.
TEST(ListenOn, ANameThatLeadsToAnotherMachineIsAskedForAgain) {
  test::set_host("moved.test", {"127.0.0.3"}, /*unknown_for=*/2, /*until_then=*/{kOfNobody});
  const int fd = listen_on("moved.test", test::free_port(), {}, std::chrono::hours(1));
  EXPECT_EQ(own_address(fd).address, "127.0.0.3");
  EXPECT_EQ(test::questions_about("moved.test"), 3);
  ::close(fd);
  EXPECT_THAT(error_of<ConfigError>([] { return listen_on(kOfNobody, test::free_port(), {}, std::chrono::hours(1)); }),
              HasSubstr("192.0.2.1 is not an address of this machine"))
      << "a number stays what it is";
}

TEST(SocketAddress, NoMoreSocketsAreToldFromAFaultOfTheAddress) {
  using sluice::test::error_without_files;
  const int port = test::free_port();
  EXPECT_THAT(error_without_files([&] { (void)listen_on("127.0.0.1", port); }),
              AllOf(HasSubstr("cannot listen on 127.0.0.1"), HasSubstr("ulimit -n")));
  OwnLimit limit(kLong);
  EXPECT_THAT(error_without_files([&] { (void)find_listener("127.0.0.1", port, limit); }),
              HasSubstr("cannot connect to 127.0.0.1"));
  EXPECT_THAT(error_without_files([] { const WakeUp wake_up; }), HasSubstr("ulimit -n"));
}

// Each pause is longer than 20 ms, but counts as that here: after 15 of them the limit is over.
TEST(FindListener, TheTimeInWhichTheNameIsUnknownCounts) {
  test::set_host("slow.test", {"127.0.0.1"}, /*unknown_for=*/3);
  OwnLimit limit(milliseconds(300), milliseconds(20));
  EXPECT_EQ(find_listener("slow.test", test::free_port(), limit).address, "");
  EXPECT_LE(test::questions_about("slow.test"), 1 + 15);
}

TEST(FindListener, AnUnknownHostIsNamedWithTheTimeWaitedAndItsSetting) {
  test::set_host("nohost.invalid", {});
  OwnLimit limit(milliseconds(300));
  EXPECT_THAT(error_of<ConfigError>([&] { (void)find_listener("nohost.invalid", 1, limit, "--init"); }),
              AllOf(HasSubstr("'nohost.invalid'"), HasSubstr("within 0.3 s; check --init")));
}

TEST(FindListener, TriesAllAddresses) {
  test::set_host("several.test", {"127.0.0.3", "127.0.0.4", "127.0.0.1"}, /*unknown_for=*/1);
  const int port = test::free_port();
  OwnLimit short_limit(milliseconds(500), kLongestTry), long_limit(kLong, kLongestTry);
  FoundListener found = find_listener("several.test", port, short_limit);
  EXPECT_EQ(found.address, "");
  EXPECT_THAT(found.tried, ElementsAre("127.0.0.3", "127.0.0.4", "127.0.0.1"));
  const int fd = listen_on("127.0.0.1", port);
  found = find_listener("several.test", port, long_limit);
  EXPECT_EQ(found.address, "127.0.0.1");
  ::close(fd);
}

}  // namespace
}  // namespace sluice::comm
