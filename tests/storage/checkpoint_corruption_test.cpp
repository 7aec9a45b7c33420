// For any damage of the newest checkpoint, its file is named and the previous one is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "checkpoint_support.h"
#include "storage/checkpoint_store.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Optional;

// In place, because a new file would be flushed to the disk each time.
void flip_bit(const fs::path& file, std::size_t byte, int bit) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(static_cast<std::streamoff>(byte));
  const auto flipped = static_cast<char>(stream.get() ^ (1 << bit));
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(flipped);
}

struct Damage {
  std::string name;
  std::string culprit;                                                     // named in the message
  std::function<void(const fs::path& newest, const fs::path& old)> apply;  // step-2, step-1
};

std::vector<Damage> matrix() {
  const std::string model = "model.safetensors", optimizer = "optimizer.safetensors", state = "state.json";
  std::vector<Damage> list;
  for (const auto& file : {model, optimizer, state}) {
    const auto label = file.substr(0, file.find('.'));
    list.push_back({label + "Truncated", file, [=](const fs::path& newest, const fs::path& /*old*/) {
                      fs::resize_file(newest / file, fs::file_size(newest / file) - 1);
                    }});
    list.push_back({label + "Grown", file, [=](const fs::path& newest, const fs::path& /*old*/) {
                      test::spill(newest / file, test::slurp(newest / file) + " ");
                    }});
    list.push_back({label + "Empty", file,
                    [=](const fs::path& newest, const fs::path& /*old*/) { test::spill(newest / file, ""); }});
    list.push_back({label + "Zeroed", file, [=](const fs::path& newest, const fs::path& /*old*/) {
                      test::spill(newest / file, std::string(fs::file_size(newest / file), '\0'));
                    }});
    list.push_back(
        {label + "Missing", file, [=](const fs::path& newest, const fs::path& /*old*/) { fs::remove(newest / file); }});
    list.push_back({label + "BitInHeader", file,
                    [=](const fs::path& newest, const fs::path& /*old*/) { flip_bit(newest / file, 20, 0); }});
    list.push_back({label + "BitAtEnd", file, [=](const fs::path& newest, const fs::path& /*old*/) {
                      flip_bit(newest / file, fs::file_size(newest / file) - 1, 7);
                    }});
  }
  for (const auto& file : {model, optimizer}) {
    list.push_back(
        {file.substr(0, file.find('.')) + "OfAnotherStep", file, [=](const fs::path& newest, const fs::path& old) {
           fs::copy_file(old / file, newest / file, fs::copy_options::overwrite_existing);
         }});
  }
  list.push_back({"StateOfAnotherStep", state, [=](const fs::path& newest, const fs::path& old) {
                    fs::copy_file(old / state, newest / state, fs::copy_options::overwrite_existing);
                  }});
  list.push_back({"WholeDirectoryOfAnotherStep", state, [](const fs::path& newest, const fs::path& old) {
                    fs::remove_all(newest);
                    fs::copy(old, newest);
                  }});
  list.push_back({"FilesSwapped", model, [=](const fs::path& newest, const fs::path& /*old*/) {
                    fs::rename(newest / model, newest / "x");
                    fs::rename(newest / optimizer, newest / model);
                    fs::rename(newest / "x", newest / optimizer);
                  }});
  return list;
}

class Corruption : public testing::TestWithParam<Damage> {};

TEST_P(Corruption, IsNamedAndThePreviousCheckpointIsTaken) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 2);
  const auto old = store.save(1, contents_of(1));
  const auto newest = store.save(2, contents_of(2));
  GetParam().apply(newest, old);
  const auto text = test::error_of<CheckpointError>([&] { return load_checkpoint(newest); });
  EXPECT_THAT(text, HasSubstr(newest.string()));
  EXPECT_THAT(text, HasSubstr(GetParam().culprit));
  EXPECT_THAT(text, HasSubstr("--resume auto"));
  EXPECT_THAT(scan_checkpoints(dir.path()).newest, Optional(old));
  expect_contents(load_checkpoint(old), 1);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Corruption, testing::ValuesIn(matrix()),
                         [](const auto& info) { return info.param.name; });

TEST(CheckpointCorruption, NoSingleBitIsEverAccepted) {
  const test::TempDir dir;
  const auto saved = CheckpointStore(dir.path(), 1).save(1, contents_of(1, 4));
  std::mt19937 random(1);
  for (const auto* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const auto size = fs::file_size(saved / name);
    for (std::size_t byte = 0; byte < size; ++byte) {
      const auto bit = static_cast<int>(random() % 8);
      flip_bit(saved / name, byte, bit);
      EXPECT_THROW(verify_checkpoint(saved), CheckpointError) << name << " byte " << byte;
      flip_bit(saved / name, byte, bit);
    }
  }
  verify_checkpoint(saved);
}

TEST(CheckpointCorruption, AnEmptyOrMissingFolderHasNoNewest) {
  const test::TempDir dir;
  EXPECT_EQ(scan_checkpoints(dir.path()).newest, std::nullopt);
  EXPECT_EQ(scan_checkpoints(dir / "none").newest, std::nullopt);
  fs::create_directory(dir / "step-4");
  const auto scan = scan_checkpoints(dir.path());
  EXPECT_EQ(scan.newest, std::nullopt);
  EXPECT_EQ(scan.damaged, std::set<std::int64_t>{4});
}

TEST(CheckpointCorruption, ANewerFormatIsRefusedByName) {
  const test::TempDir dir;
  const auto saved = CheckpointStore(dir.path(), 1).save(1, contents_of(1));
  auto state = nlohmann::json::parse(test::slurp(saved / "state.json"));
  state.erase("xxh3_128");
  state["format"] = 2;
  const auto rest = state.dump().substr(1);
  test::spill(saved / "state.json", R"({"xxh3_128":")" + digest_text(rest).xxh3_128 + R"(",)" + rest);
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return load_checkpoint(saved); }),
              HasSubstr("has format 2, this version of Sluice reads 1"));
}

}  // namespace
}  // namespace sluice::storage
