#include "profiler/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/concat.h"

namespace sluice::profiler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr Nanoseconds kSecond = 1'000'000'000;

// As a machine with a loopback and a network card prints it.
constexpr auto kRecorded =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier "
    "compressed\n"
    "    lo: 9107331   60123    0    0    0     0          0         0  9107331   60123    0    0    0     0       0  "
    "        0\n"
    "  eth0:58390211  120044    0    2    0     0          0        12 18446744073709551615   90000    0    0    0     "
    "0 "
    "      0          0\n";

// A line with bytes received and sent, the other counters 1.
std::string line(std::string_view name, std::uint64_t received, std::uint64_t sent) {
  return concat(name, ": ", received, " 1 1 1 1 1 1 1 ", sent, " 1 1 1 1 1 1 1\n");
}

// A stand-in for /proc/net/dev that a test can rewrite.
class NetDevFile {
 public:
  explicit NetDevFile(const std::string& text) { write(text); }
  ~NetDevFile() { std::filesystem::remove(path_); }
  NetDevFile(const NetDevFile&) = delete;
  NetDevFile& operator=(const NetDevFile&) = delete;

  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) /
      concat("net_dev_", ::getpid(), "_", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST(ParseNetDev, ReadsWhatAMachinePrints) {
  EXPECT_THAT(parse_net_dev(kRecorded),
              ElementsAre(Pair("eth0", InterfaceBytes{.received = 58390211, .sent = 18446744073709551615U}),
                          Pair("lo", InterfaceBytes{.received = 9107331, .sent = 9107331})));
}

TEST(ParseNetDev, TakesNamesWithColonsAndLinesWithoutNewline) {
  std::string alias = line("eth0:1", 5, 7);
  alias.pop_back();
  EXPECT_THAT(parse_net_dev(alias), ElementsAre(Pair("eth0:1", InterfaceBytes{.received = 5, .sent = 7})));
}

TEST(ParseNetDev, LeavesOddLinesOut) {
  const std::string odd =
      concat("\n:\neth1:\neth2: 1 2 3\n", line("", 1, 1), "eth3: x 1 1 1 1 1 1 1 2 1 1 1 1 1 1 1\n",
             "eth4: 1x 1 1 1 1 1 1 1 2 1 1 1 1 1 1 1\n", "eth5: -1 1 1 1 1 1 1 1 2 1 1 1 1 1 1 1\n",
             "eth6: 99999999999999999999 1 1 1 1 1 1 1 2 1 1 1 1 1 1 1\n", std::string("\0:\xff", 3));
  EXPECT_THAT(parse_net_dev(odd), IsEmpty());
  EXPECT_THAT(parse_net_dev(odd + "\n" + line("eth7", 1, 2)),
              ElementsAre(Pair("eth7", InterfaceBytes{.received = 1, .sent = 2})));
  EXPECT_THAT(parse_net_dev(""), IsEmpty());
}

TEST(NetworkRates, AreBytesPerSecondAndLoopbackCountsOnce) {
  const NetworkRates rates =
      network_rates({{"eth0", {1000, 500}}, {"lo", {0, 0}}}, {{"eth0", {3000, 600}}, {"lo", {80, 80}}}, /*seconds=*/2);
  EXPECT_DOUBLE_EQ(rates.interfaces.at("eth0").received, 1000);
  EXPECT_DOUBLE_EQ(rates.interfaces.at("eth0").sent, 50);
  EXPECT_DOUBLE_EQ(rates.interfaces.at("lo").sent, 40);
  EXPECT_DOUBLE_EQ(rates.total, 1000 + 50 + 40);
}

TEST(NetworkRates, NeedAnInterfaceAtBothEnds) {
  const NetworkRates rates =
      network_rates({{"gone", {1, 1}}, {"stays", {1, 1}}}, {{"stays", {2, 1}}, {"new", {9, 9}}}, 1);
  EXPECT_EQ(rates.interfaces.size(), 1U);
  EXPECT_DOUBLE_EQ(rates.total, 1);
}

TEST(NetworkRates, ACounterThatGoesBackHasWrappedOrBegunAnew) {
  constexpr std::uint64_t kRange = std::uint64_t{1} << 32;
  const NetworkRates wrapped = network_rates({{"e", {kRange - 100, 0}}}, {{"e", {50, 0}}}, 1);
  EXPECT_DOUBLE_EQ(wrapped.total, 150);
  const NetworkRates small = network_rates({{"e", {1'000'000, 0}}}, {{"e", {50, 0}}}, 1);
  EXPECT_DOUBLE_EQ(small.total, 50) << "4.3 GB in a second is no wrap";
  const NetworkRates large = network_rates({{"e", {kRange + 5, 0}}}, {{"e", {50, 0}}}, 1);
  EXPECT_DOUBLE_EQ(large.total, 50) << "a counter beyond 2^32 has 64 bits and does not wrap";
}

TEST(NetworkSampler, ReadsAtMostOncePerInterval) {
  const NetDevFile file(line("eth0", 0, 0));
  NetworkSampler sampler(file.path());
  EXPECT_THAT(sampler.rates(0).interfaces, IsEmpty());
  file.write(line("eth0", 600, 300));
  EXPECT_EQ(sampler.rates(NetworkSampler::kInterval - 1).total, 0) << "too early to read again";
  EXPECT_DOUBLE_EQ(sampler.rates(NetworkSampler::kInterval).total, 1800);
  file.write(line("eth0", 1000000, 300));
  EXPECT_DOUBLE_EQ(sampler.rates(2 * NetworkSampler::kInterval - 1).total, 1800) << "the last answer again";
  EXPECT_DOUBLE_EQ(sampler.rates(NetworkSampler::kInterval + 2 * kSecond).total, (1000000.0 - 600) / 2)
      << "asked late, it answers for the whole time";
}

TEST(NetworkSampler, InterfacesMayVanishAndAppear) {
  const NetDevFile file(line("eth0", 0, 0));
  NetworkSampler sampler(file.path());
  static_cast<void>(sampler.rates(0));
  file.write(line("eth1", 5000, 0));
  EXPECT_THAT(sampler.rates(kSecond).interfaces, IsEmpty());
  file.write(line("eth1", 5100, 0));
  EXPECT_DOUBLE_EQ(sampler.rates(2 * kSecond).total, 100);
  std::filesystem::remove(file.path());
  EXPECT_EQ(sampler.rates(3 * kSecond).total, 0);
}

TEST(NetworkSampler, ReadsThisMachine) {
  if (!std::filesystem::exists("/proc/net/dev")) GTEST_SKIP() << "no /proc/net/dev";
  NetworkSampler sampler;
  static_cast<void>(sampler.rates(0));
  EXPECT_FALSE(sampler.rates(kSecond).interfaces.empty());
}

}  // namespace
}  // namespace sluice::profiler
