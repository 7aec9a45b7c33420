#include "data/image_folder.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"
#include "data/file.h"
#include "data/pictures.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array kEndings{"jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"};

struct Picture {
  std::string file;
  std::int64_t label = 0;
};

class ImageFolder final : public Dataset {
 public:
  ImageFolder(DatasetInfo info, fs::path folder, std::vector<Picture> pictures)
      : info_(std::move(info)), folder_(std::move(folder)), pictures_(std::move(pictures)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(pictures_); }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return picture(index).label; }
  [[nodiscard]] std::string file_of(std::int64_t index) const override { return path_of(index).native(); }
  [[nodiscard]] std::vector<std::uint8_t> encoded(std::int64_t index) const override {
    return read_bytes(path_of(index), kMostPictureBytes);
  }
  void read(std::int64_t, std::span<std::uint8_t>) const override {
    check(false, "encoded() for pictures of a folder");
  }

 private:
  [[nodiscard]] const Picture& picture(std::int64_t index) const { return pictures_[checked(index)]; }
  [[nodiscard]] fs::path path_of(std::int64_t index) const { return folder_ / picture(index).file; }

  DatasetInfo info_;
  fs::path folder_;
  std::vector<Picture> pictures_;
};

bool is_picture(const fs::path& file) { return std::ranges::find(kEndings, ending_of(file)) != kEndings.end(); }

constexpr std::string_view kFolderAdvice =
    "data.path must hold train/CLASS/PICTURE and val/CLASS/PICTURE, or choose another data.name";

[[noreturn]] void reject_folder(const fs::path& folder, const std::string& what) {
  reject_file(folder.native(), what, kFolderAdvice);
}

struct Listing {
  std::vector<std::string> folders, files;
};

Listing list(const fs::path& folder) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;  // a broken link counts as a file, and reading it fails
    const bool is_folder = entry->is_directory(ignored);
    (is_folder ? listing.folders : listing.files).push_back(entry->path().filename().native());
  }
  if (error) reject_unlistable(folder, error, kFolderAdvice);
  std::ranges::sort(listing.folders);
  std::ranges::sort(listing.files);
  return listing;
}

// Lists `folder` (as "") and the folders below it by path, in the order in which Python compares strings.
std::vector<std::string> folders_below(const fs::path& folder, const std::string& own, std::set<fs::path>& seen) {
  std::error_code error;
  if (!seen.insert(fs::canonical(folder, error)).second) reject_folder(folder, "a link leads back to its own folder");
  std::vector<std::string> found{own};
  for (const std::string& name : list(folder).folders) {
    const std::string below = own.empty() ? name : concat(own, "/", name);
    std::ranges::copy(folders_below(folder / name, below, seen), std::back_inserter(found));
  }
  seen.erase(fs::canonical(folder, error));
  return found;
}

std::vector<Picture> pictures_of(const fs::path& split_folder, const std::string& name, std::int64_t label,
                                 SkippedFiles& skipped_files) {
  std::set<fs::path> seen;
  std::vector<std::string> folders = folders_below(split_folder / name, name, seen);
  std::ranges::sort(folders);
  std::vector<Picture> pictures;
  for (const std::string& folder : folders) {
    for (const std::string& file : list(split_folder / folder).files) {
      if (is_picture(file)) {
        pictures.push_back({concat(folder, "/", file), label});
      } else {
        skipped_files.add((split_folder / folder / file).native());
      }
    }
  }
  if (pictures.empty())
    reject_folder(split_folder / name, concat("no file ends with one of .",
                                              join(std::vector<std::string>(kEndings.begin(), kEndings.end()), " .")));
  return pictures;
}

std::vector<std::string> classes_of(const fs::path& split_folder) {
  if (!is_there(split_folder)) reject_folder(split_folder, "no such folder");
  auto [classes, files] = list(split_folder);
  const auto stray = std::ranges::find_if(files, [](const std::string& file) { return is_picture(file); });
  if (stray != files.end()) {
    reject_file(split_folder.native(), concat("picture ", *stray, " is in no class folder"),
                "move it into one, or remove it");
  }
  if (classes.empty()) reject_folder(split_folder, "there are no class folders");
  return classes;
}

void check_classes(const fs::path& folder, const std::vector<std::string>& train) {
  const std::vector<std::string> own = classes_of(folder);
  std::vector<std::string> other;
  std::ranges::set_symmetric_difference(own, train, std::back_inserter(other));
  if (other.empty()) return;
  const bool is_here = std::ranges::binary_search(own, other.front());
  reject_folder(folder, concat("class ", other.front(), is_here ? " is not in train" : " is missing, but is in train",
                               " (", other.size(), " of ", train.size(), " classes differ)"));
}

}  // namespace

std::unique_ptr<Dataset> open_image_folder(const fs::path& path, Split split) {
  const std::vector<std::string> classes = classes_of(path / "train");
  const fs::path folder = path / (split == Split::kTrain ? "train" : "val");
  if (split == Split::kTest) check_classes(folder, classes);
  SkippedFiles skipped_files;
  std::vector<Picture> pictures;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    std::ranges::move(pictures_of(folder, classes[label], static_cast<std::int64_t>(label), skipped_files),
                      std::back_inserter(pictures));
  }
  DatasetInfo info = info_of_pictures("image_folder", split, std::ssize(classes));
  info.is_sorted_by_class = true;
  skipped_files.log(info);
  return std::make_unique<ImageFolder>(std::move(info), folder, std::move(pictures));
}

}  // namespace sluice::data
