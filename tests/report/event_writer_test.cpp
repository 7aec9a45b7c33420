// Bytes of event files. That TensorBoard itself reads them is interop_test.py.
#include "report/event_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <bit>
#include <cstring>

#include "report/crc32c.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using testing::HasSubstr;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

// Payloads of a file's records; fails when a checksum is wrong or bytes are left over.
std::vector<std::string> payloads_of(const std::filesystem::path& file) {
  std::vector<std::string> payloads;
  const auto bytes = test::slurp(file);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    std::uint64_t length = 0;
    if (rest.size() < 16) break;
    std::memcpy(&length, rest.data(), sizeof(length));
    if (rest.size() < 16 + length) break;
    const auto payload = rest.substr(12, length);
    EXPECT_EQ(event_record(payload), rest.substr(0, 16 + length));
    payloads.emplace_back(payload);
    rest.remove_prefix(16 + length);
  }
  EXPECT_TRUE(rest.empty()) << rest.size() << " bytes after the last whole record";
  return payloads;
}

TEST(EventWriter, GoldenPayloads) {
  EXPECT_EQ(hex(version_event(1.5)),
            "09000000000000f83f"
            "1a0d" +
                hex("brain.Event:2"));
  EXPECT_EQ(hex(session_start_event(1.5, 300)),
            "09000000000000f83f"
            "10ac02"
            "3a020801");
  EXPECT_EQ(hex(scalar_event(1.5, 3, "loss", 0.5F)),
            "09000000000000f83f"
            "1003"
            "2a0d0a0b"
            "0a04" +
                hex("loss") + "150000003f");
  EXPECT_EQ(hex(text_event(1.5, 3, "t", "hi")),
            "09000000000000f83f"
            "1003"
            "2a1b"
            "0a19"
            "0a0174"
            "4208"
            "0807"
            "1200"
            "42026869"
            "4a0a"
            "0a06"
            "0a0474657874"
            "2002");
}

TEST(EventWriter, ARecordFramesItsPayloadWithMaskedChecksums) {
  const auto record = event_record("123456789");
  ASSERT_EQ(record.size(), 8U + 4U + 9U + 4U);
  std::uint32_t stored = 0;
  std::memcpy(&stored, record.data() + 21, sizeof(stored));
  EXPECT_EQ(stored, std::rotr(0xE3069283U, 15) + 0xa282ead8U);
}

TEST(EventWriter, TheFileBeginsWithItsVersionThenTheResumeStep) {
  const test::TempDir dir;
  EventWriter fresh(dir / "tensorboard");
  EventWriter resumed(dir / "tensorboard", 40);
  EXPECT_NE(fresh.path(), resumed.path());
  EXPECT_THAT(fresh.path().filename().string(), testing::StartsWith("events.out.tfevents."));
  resumed.scalar(40, "loss", 1.0);
  const auto payloads = payloads_of(resumed.path());
  ASSERT_EQ(payloads.size(), 3U);
  EXPECT_THAT(payloads[0], HasSubstr("brain.Event:2"));
  EXPECT_THAT(hex(payloads[1]), testing::EndsWith("10283a020801"));
  EXPECT_THAT(payloads[2], HasSubstr("loss"));
  EXPECT_EQ(payloads_of(fresh.path()).size(), 1U);
}

TEST(EventWriter, AFullDiskDropsWholeEventsOnly) {
  const test::TempDir dir;
  const auto pid = ::fork();
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EventWriter writer(dir.path());
    for (int step = 0; step < 100; ++step) writer.scalar(step, "loss", step);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_EQ(status, 0);
  const auto count = payloads_of(dir.path() / test::names_in(dir.path()).at(0)).size();
  EXPECT_GT(count, 10U);
  EXPECT_LT(count, 100U);
}

TEST(EventWriter, AFolderThatCannotBeMadeIsAStorageError) {
  const test::TempDir dir;
  test::spill(dir / "file", "");
  EXPECT_THAT(test::error_of<StorageError>([&] { EventWriter(dir / "file"); }), HasSubstr("file"));
}

}  // namespace
}  // namespace sluice::report
