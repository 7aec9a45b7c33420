#include "data/dataset.h"

#include <gmock/gmock.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <iomanip>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "data/idx_files.h"

namespace sluice::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

void write_mnist(const std::filesystem::path& folder, const Bytes& labels = {7, 0, 9}) {
  const Bytes images = images_bytes(3, 2, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  write_file(folder / "train-images-idx3-ubyte.gz", gzip(images));
  write_file(folder / "train-labels-idx1-ubyte", labels_bytes(labels));
  write_file(folder / "t10k-images-idx3-ubyte", images);
  write_file(folder / "t10k-labels-idx1-ubyte.gz", gzip(labels_bytes(labels)));
}

auto opening(const DatasetOptions& options, Split split = Split::kTrain) {
  return [=] { static_cast<void>(open_dataset(options, split)); };
}

TEST(Dataset, MnistIsReadByteForByte) {
  const TemporaryFolder folder;
  write_mnist(folder.path());
  for (const auto split : {Split::kTrain, Split::kTest}) {
    const auto dataset = open_dataset({.name = "mnist", .path = folder.path()}, split);
    const auto& info = dataset->info();
    EXPECT_EQ(info.name, "mnist");
    EXPECT_EQ(info.split, split);
    EXPECT_THAT((std::array{info.channels, info.height, info.width, info.classes}), ElementsAre(1, 2, 2, 10));
    ASSERT_EQ(dataset->size(), 3);
    Bytes pixels(4);
    dataset->read(1, pixels);
    EXPECT_THAT(pixels, ElementsAre(5, 6, 7, 8));
    EXPECT_EQ(dataset->target(0), 7);
    EXPECT_EQ(dataset->target(2), 9);
    EXPECT_THROW(dataset->read(3, pixels), BugError);
    EXPECT_THROW(static_cast<void>(dataset->target(-1)), BugError);
  }
}

TEST(Dataset, LimitKeepsTheFirstSamples) {
  const TemporaryFolder folder;
  write_mnist(folder.path());
  const auto dataset = open_dataset({.name = "mnist", .path = folder.path(), .limit = 2}, Split::kTrain);
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->target(1), 0);
  EXPECT_THROW(static_cast<void>(dataset->target(2)), BugError);
  EXPECT_EQ(open_dataset({.name = "mnist", .path = folder.path(), .limit = 99}, Split::kTrain)->size(), 3);
  EXPECT_THAT(opening({.name = "mnist", .limit = -1}), ThrowsMessage<ConfigError>(HasSubstr("data.limit = -1")));
}

TEST(Dataset, MissingFilesGiveThePathAndAnAction) {
  const TemporaryFolder folder;
  EXPECT_THAT(opening({.name = "fashion_mnist", .path = folder.path()}),
              ThrowsMessage<DataError>(AllOf(HasSubstr((folder.path() / "train-images-idx3-ubyte.gz").native()),
                                             HasSubstr("apt-get install dataset-fashion-mnist"))));
  EXPECT_THAT(opening({.name = "mnist", .path = folder.path()}, Split::kTest),
              ThrowsMessage<DataError>(AllOf(HasSubstr("t10k-images"), HasSubstr("set data.path"))));
  EXPECT_THAT(opening({.name = "mnist"}), ThrowsMessage<ConfigError>(HasSubstr("data.path is empty")));
}

// train/cat/1.jpg and val/cat/1.jpg.
void write_picture_folder(const std::filesystem::path& folder) {
  for (const char* split : {"train", "val"}) {
    std::filesystem::create_directories(folder / split / "cat");
    write_file(folder / split / "cat" / "1.jpg", {1});
  }
}

TEST(Dataset, OtherFilesOfAFolderAreCountedAndLoggedOnce) {
  const TemporaryFolder folder;
  write_picture_folder(folder.path());
  const auto opened = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(open_dataset({.name = "image_folder", .path = folder.path()}, Split::kTrain)->size(), 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(opened(), "");
  for (const char* name : {"2.gif", "3.GIF", "README"}) write_file(folder.path() / "train/cat" / name, {1});
  EXPECT_THAT(opened(),
              HasSubstr(concat("data set image_folder (train): 3 files hold no sample: 1 without an ending, 2 "
                               "*.gif; the first is ",
                               (folder.path() / "train/cat/2.gif").native())));
}

TEST(Dataset, APictureInNoClassFolderIsAnError) {
  const TemporaryFolder folder;
  write_picture_folder(folder.path());
  write_file(folder.path() / "val/notes.txt", {1});
  EXPECT_NO_THROW(open_dataset({.name = "image_folder", .path = folder.path()}, Split::kTest));
  write_file(folder.path() / "val/2.JPG", {1});
  EXPECT_THAT(
      opening({.name = "image_folder", .path = folder.path()}, Split::kTest),
      ThrowsMessage<DataError>(HasSubstr("picture 2.JPG is in no class folder; move it into one, or remove it")));
}

TEST(Dataset, OnlyPublicFilesCanBeFetchedAgain) {
  const TemporaryFolder folder;
  write_file(folder.path() / "train_images.npy", {1, 2, 3});
  EXPECT_THAT(opening({.name = "npy", .path = folder.path()}),
              ThrowsMessage<DataError>(HasSubstr("; correct or replace the file, or point data.path at another one")));
  write_mnist(folder.path());
  write_file(folder.path() / "train-labels-idx1-ubyte", {1, 2, 3});
  EXPECT_THAT(opening({.name = "mnist", .path = folder.path()}),
              ThrowsMessage<DataError>(HasSubstr("; fetch the file again or point data.path at an intact copy")));
}

// Runs as another user, because root may read everything. Affects only this thread.
class AsNobody {
 public:
  AsNobody() { ::setfsuid(kNobody); }
  ~AsNobody() { ::setfsuid(::geteuid()); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
};

TEST(Dataset, UnreadableFilesAreNotCalledMissing) {
  const TemporaryFolder folder;
  const auto closed = folder.path() / "closed";
  const auto rights = [](const std::filesystem::path& path, int mode) {
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
  };
  std::filesystem::create_directory(closed);
  write_mnist(closed);
  write_file(closed / "data_batch_1.bin", Bytes(3073));
  write_file(closed / "text.txt", Bytes(3000));
  const auto refused = [&](const std::string& name, const std::string& file, const std::string& whose) {
    const AsNobody nobody;
    const auto path = name == "text" ? closed / file : closed;
    EXPECT_THAT(
        opening({.name = name, .path = path}),
        ThrowsMessage<DataError>((closed / file).native() + " cannot be read: Permission denied; change the " +
                                 "permissions of " + whose + " or point data.path at a copy that this user may read"))
        << name;
  };
  using NamesAndFiles = std::vector<std::pair<std::string, std::string>>;
  rights(folder.path(), 0711);
  rights(closed, 0600);
  for (const auto& [name, file] : NamesAndFiles{{"mnist", "train-images-idx3-ubyte"},
                                                {"fashion_mnist", "train-images-idx3-ubyte"},
                                                {"cifar10", "data_batch_1.bin"},
                                                {"cifar100", "train.bin"},
                                                {"text", "text.txt"}}) {
    refused(name, file, concat("folder ", closed.native()));
  }
  rights(closed, 0711);
  for (const auto& [name, file] :
       NamesAndFiles{{"mnist", "train-images-idx3-ubyte.gz"}, {"cifar10", "data_batch_1.bin"}, {"text", "text.txt"}}) {
    rights(closed / file, 0);
    refused(name, file, "the file");
  }
}

TEST(Dataset, AClassFolderThatMayNotBeListedIsNamedWithTheCommandThatOpensIt) {
  const TemporaryFolder folder;
  write_picture_folder(folder.path());
  const auto closed = folder.path() / "train/cat";
  std::filesystem::permissions(folder.path(), static_cast<std::filesystem::perms>(0711));
  std::filesystem::permissions(folder.path() / "train", static_cast<std::filesystem::perms>(0755));
  std::filesystem::permissions(closed, static_cast<std::filesystem::perms>(0));
  const auto open = opening({.name = "image_folder", .path = folder.path()});
  {
    const AsNobody nobody;
    EXPECT_THAT(open,
                ThrowsMessage<DataError>(closed.native() +
                                         ": the folder cannot be listed (Permission denied); let its owner run "
                                         "`chmod a+rx " +
                                         closed.native() + "`, or point data.path at a copy that this user may read"));
  }
  std::filesystem::permissions(closed, static_cast<std::filesystem::perms>(0755));
}

// One sample of class 0 without the blocks of zeros that end an archive.
void write_shard_without_end(const std::filesystem::path& file) {
  Bytes shard;
  for (const auto& [name, content] : {std::pair{"a.jpg", '1'}, std::pair{"a.cls", '0'}}) {
    std::string header(512, '\0');
    header.replace(0, 5, name);
    header.replace(124, 11, "00000000001");
    header.replace(148, 8, "        ");
    header[156] = '0';
    unsigned sum = 0;
    for (const unsigned char byte : header) sum += byte;
    std::ostringstream octal;
    octal << std::oct << std::setw(6) << std::setfill('0') << sum;
    header.replace(148, 6, octal.str());
    header[154] = '\0';
    header += content;
    header.resize(1024);
    shard.insert(shard.end(), header.begin(), header.end());
  }
  write_file(file, shard);
}

TEST(Dataset, ATarShardWithoutEndIsWarnedAboutOnce) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "val"}) {
    std::filesystem::create_directories(folder.path() / split);
    write_shard_without_end(folder.path() / split / "0.tar");
  }
  for (const auto& [split, own, other] :
       {std::tuple{Split::kTrain, "train", "val"}, std::tuple{Split::kTest, "val", "train"}}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(open_dataset({.name = "tar", .path = folder.path()}, split)->size(), 1);
    const std::string warnings = testing::internal::GetCapturedStderr();
    EXPECT_THAT(warnings, HasSubstr((folder.path() / own / "0.tar").native() + " does not end with blocks of zeros"));
    EXPECT_THAT(warnings, Not(HasSubstr((folder.path() / other / "0.tar").native())));
  }
}

TEST(Dataset, CountMismatchIsNamed) {
  const TemporaryFolder folder;
  write_mnist(folder.path(), {1, 2});
  EXPECT_THAT(
      opening({.name = "mnist", .path = folder.path()}),
      ThrowsMessage<DataError>(AllOf(HasSubstr("train-labels-idx1-ubyte: byte 4: found 2 labels for the 3 images in"),
                                     HasSubstr("train-images-idx3-ubyte.gz; put"))));
}

TEST(Dataset, ALabelOutOfRangeIsNamed) {
  const TemporaryFolder folder;
  write_mnist(folder.path(), {1, 2, 10});
  EXPECT_THAT(opening({.name = "mnist", .path = folder.path()}),
              ThrowsMessage<DataError>(AllOf(HasSubstr("train-labels-idx1-ubyte: byte 10"),
                                             HasSubstr("the label of sample 2 is 10, expected 0 to 9"))));
}

TEST(Dataset, SwappedFilesAreNamed) {
  const TemporaryFolder folder;
  write_mnist(folder.path());
  std::filesystem::copy_file(folder.path() / "train-labels-idx1-ubyte", folder.path() / "train-images-idx3-ubyte");
  EXPECT_THAT(opening({.name = "mnist", .path = folder.path()}),
              ThrowsMessage<DataError>(HasSubstr("found 0x00000801 (a file of labels)")));
}

TEST(Dataset, AnUnknownNameGetsTheNearestOne) {
  EXPECT_THAT(opening({.name = "fashion-mnist"}),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("did you mean 'fashion_mnist'?"), HasSubstr("shapes"))));
}

TEST(Dataset, TheListNamesWhatCanBeOpened) {
  std::vector<std::string> names;
  for (const auto& description : list_datasets()) {
    names.push_back(description.name);
    EXPECT_FALSE(description.what.empty());
    const bool needs_folder = description.name != "shapes" && description.name != "text" && description.name != "toy";
    EXPECT_EQ(description.files.empty(), !needs_folder);
  }
  EXPECT_THAT(names, ElementsAre("fashion_mnist", "mnist", "cifar10", "cifar100", "image_folder", "npy", "tar",
                                 "tensors", "shapes", "text", "squad", "jsonl", "csv", "tokens", "toy"));
}

TEST(Dataset, AProgramsOwnDataSetNeedsANewName) {
  const auto open = [](const DatasetOptions& options, Split split) { return open_dataset(options, split); };
  const auto adding = [&](const char* name) {
    return [=] {
      add_dataset({.description = {.name = name, .what = {}, .default_path = {}, .files = {}}, .open = open});
    };
  };
  const std::size_t known = list_datasets().size();
  EXPECT_THAT(adding("shapes"), ThrowsMessage<ConfigError>(HasSubstr("a data set \"shapes\" already exists")));
  EXPECT_THROW(adding("")(), ConfigError);
  EXPECT_EQ(list_datasets().size(), known);
}

TEST(Dataset, FashionMnistOfTheDebianPackage) {
  const auto folder = list_datasets().front().default_path;
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << folder << " is not there: apt-get install dataset-fashion-mnist";
  const auto train = open_dataset({.name = "fashion_mnist"}, Split::kTrain);
  const auto test = open_dataset({.name = "fashion_mnist"}, Split::kTest);
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(test->size(), 10000);
  std::vector<std::int64_t> first(10);
  for (std::int64_t i = 0; i < 10; ++i) first[static_cast<std::size_t>(i)] = train->target(i);
  EXPECT_THAT(first, ElementsAre(9, 0, 0, 3, 0, 2, 7, 2, 5, 5));

  double sum = 0, squares = 0;
  Bytes pixels(784);
  for (std::int64_t i = 0; i < train->size(); ++i) {
    train->read(i, pixels);
    for (const double p : pixels) sum += p, squares += p * p;
  }
  const double count = 60000.0 * 28 * 28 * 255;
  const double mean = sum / count;
  EXPECT_NEAR(train->info().mean[0], mean, 1e-4);
  EXPECT_NEAR(train->info().stddev[0], std::sqrt(squares / count / 255 - mean * mean), 1e-4);
}

}  // namespace
}  // namespace sluice::data
