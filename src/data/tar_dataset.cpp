#include "data/tar_dataset.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/concat.h"
#include "core/file_descriptor.h"
#include "core/log.h"
#include "data/file.h"
#include "data/pictures.h"
#include "data/tar.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostLabelBytes = std::int64_t{1} << 20;

class Shard {
 public:
  explicit Shard(const fs::path& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!file_.is_open()) reject_unreadable(path_, {errno, std::system_category()});
  }

  [[nodiscard]] std::int64_t size() const {
    std::error_code error;
    const auto size = fs::file_size(path_, error);
    if (error) reject_unreadable(path_, error);
    return static_cast<std::int64_t>(size);
  }
  void read(std::int64_t offset, std::span<std::uint8_t> bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = uninterrupted([&] { return ::pread(file_.get(), bytes.data(), bytes.size(), offset); });
      if (done < 0) reject_unreadable(path_, {errno, std::system_category()});
      if (done == 0)
        reject_file(path_.native(), concat("it ends at byte ", offset, "; it was longer when it was opened"));
      bytes = bytes.subspan(static_cast<std::size_t>(done));
      offset += done;
    }
  }

 private:
  const fs::path& path_;
  FileDescriptor file_;
};

struct PackedPicture {
  std::int32_t shard = 0;
  std::int32_t label = 0;
  std::int64_t offset = 0;
  std::int64_t size = 0;
  std::string name;
};

class TarDataset final : public Dataset {
 public:
  TarDataset(DatasetInfo info, std::vector<fs::path> shards, std::vector<PackedPicture> pictures)
      : info_(std::move(info)), shards_(std::move(shards)), pictures_(std::move(pictures)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(pictures_); }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return picture(index).label; }
  [[nodiscard]] std::string file_of(std::int64_t index) const override {
    return concat(shard_of(index).native(), "/", picture(index).name);
  }
  [[nodiscard]] std::vector<std::uint8_t> encoded(std::int64_t index) const override {
    const PackedPicture& wanted = picture(index);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(wanted.size));
    Shard(shard_of(index)).read(wanted.offset, bytes);
    return bytes;
  }
  void read(std::int64_t, std::span<std::uint8_t>) const override {
    check(false, "encoded() for pictures of a tar file");
  }
  [[nodiscard]] std::vector<std::int64_t> shard_begins() const override {
    std::vector<std::int64_t> begins;
    for (std::int64_t i = 0; i < size(); ++i) {
      if (i == 0 || picture(i).shard != picture(i - 1).shard) begins.push_back(i);
    }
    return begins;
  }

 private:
  [[nodiscard]] const PackedPicture& picture(std::int64_t index) const { return pictures_[checked(index)]; }
  [[nodiscard]] const fs::path& shard_of(std::int64_t index) const { return shards_[picture(index).shard]; }

  DatasetInfo info_;
  std::vector<fs::path> shards_;
  std::vector<PackedPicture> pictures_;
};

// Splits "a/b.left.jpg" into the key "a/b" and the part "left.jpg". Empty: no key.
std::pair<std::string, std::string> key_and_part(const std::string& name) {
  const std::size_t slash = name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1;
  const std::size_t dot = name.find('.', slash);
  if (dot == std::string::npos || dot == slash) return {};
  std::string part = name.substr(dot + 1);
  std::ranges::transform(part, part.begin(), [](unsigned char c) { return std::tolower(c); });
  return {name.substr(0, dot), std::move(part)};
}

bool is_picture_part(const std::string& part) {
  constexpr std::array kEndings{"jpg", "jpeg", "png", "webp"};
  return std::ranges::find(kEndings, part) != kEndings.end();
}

bool is_label_part(const std::string& part) { return part == "cls" || part == "json"; }

class ShardReader {
 public:
  ShardReader(const fs::path& path, std::int32_t number, SkippedFiles& skipped_files, bool warns)
      : name_(path.native()), shard_(path), number_(number), skipped_files_(skipped_files), warns_(warns) {}

  void add_to(std::vector<PackedPicture>& pictures) {
    const ReadAt read = [this](std::int64_t offset, std::span<std::uint8_t> bytes) { shard_.read(offset, bytes); };
    const TarListing listing = list_tar(shard_.size(), read, name_);
    if (warns_ && !listing.has_end) {
      log_warning(name_,
                  " does not end with blocks of zeros as tar files do; if it was cut off, samples are missing: "
                  "compare its size with the original's");
    }
    for (const TarMember& member : listing.members) {
      auto [key, part] = key_and_part(member.name);
      const bool is_of_sample = is_picture_part(part) || is_label_part(part);
      if (member.is_symbolic_link && is_of_sample) {
        reject_file(name_, concat(member.name, " is a symbolic link, which is not followed"),
                    "pack the files with tar --dereference");
      }
      if (key.empty() || member.is_symbolic_link) {
        skipped_files_.add(concat(name_, "/", member.name));
        continue;
      }
      if (key != key_) finish(pictures);
      key_ = std::move(key);
      if (is_of_sample) {
        take(member, part);
      } else {
        others_.push_back(member.name);
      }
    }
    finish(pictures);
  }

 private:
  void take(const TarMember& member, const std::string& part) {
    if (is_picture_part(part)) {
      if (picture_)
        reject_file(name_, concat("sample ", key_, " has two pictures, ", picture_->name, " and ", member.name));
      if (member.size > kMostPictureBytes)
        reject_file(name_, concat(member.name, " has ", member.size, " bytes, expected at most ", kMostPictureBytes));
      picture_ = member;
    } else if (part == "cls") {
      label_ = number_in(member, text_of(member));
    } else if (part == "json" && !label_) {
      const auto json = nlohmann::json::parse(text_of(member), nullptr, /*allow_exceptions=*/false);
      const auto label = json.is_object() ? json.find("label") : json.end();
      if (json.is_object() && label != json.end()) label_ = number_in(member, label->dump());
    }
  }

  [[nodiscard]] std::string text_of(const TarMember& member) const {
    if (member.size > kMostLabelBytes)
      reject_file(name_, concat(member.name, " has ", member.size, " bytes, expected at most ", kMostLabelBytes));
    std::string text(static_cast<std::size_t>(member.size), '\0');
    shard_.read(member.offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
    return text;
  }

  [[nodiscard]] std::int32_t number_in(const TarMember& member, const std::string& text) const {
    const std::size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
    std::int32_t number = -1;
    if (begin != std::string::npos) {
      const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end + 1, number);
      if (error != std::errc{} || stop != text.data() + end + 1) number = -1;
    }
    if (number < 0 || number >= kMostClasses)
      reject_file(name_, concat(member.name, " must hold the number of a class, 0 to ", kMostClasses - 1));
    return number;
  }

  // Rejects other members of a sample that look like a missing picture or have a class of their own.
  void refuse_lost_samples() const {
    for (const std::string& picture : others_) {
      if (!is_picture_part(ending_of(picture))) continue;
      const fs::path stem = fs::path(picture).replace_extension();
      const bool has_label = std::ranges::any_of(others_, [&](const std::string& other) {
        return is_label_part(ending_of(other)) && fs::path(other).replace_extension() == stem;
      });
      if (picture_ && !has_label) continue;
      reject_file(name_,
                  concat(picture, " has a second dot in its name, so WebDataset's rule makes it part of sample ", key_),
                  "rename the files so that only the extension follows a dot");
    }
  }

  void finish(std::vector<PackedPicture>& pictures) {
    refuse_lost_samples();
    for (const std::string& other : others_) skipped_files_.add(concat(name_, "/", other));
    others_.clear();
    if (picture_.has_value() != label_.has_value()) {
      reject_file(name_, concat("sample ", key_, " has ", picture_ ? "no class" : "no picture"),
                  "put KEY.jpg, .png or .webp and its class, KEY.cls or \"label\" in KEY.json, side by side");
    }
    if (picture_) pictures.push_back({number_, *label_, picture_->offset, picture_->size, std::move(picture_->name)});
    picture_.reset();
    label_.reset();
  }

  const std::string name_;
  const Shard shard_;
  const std::int32_t number_;
  SkippedFiles& skipped_files_;
  const bool warns_;
  std::string key_;
  std::vector<std::string> others_;
  std::optional<TarMember> picture_;
  std::optional<std::int32_t> label_;
};

std::vector<fs::path> shards_in(const fs::path& folder, SkippedFiles& skipped_files) {
  constexpr std::array kPacked{"gz", "bz2", "xz", "zst"};
  std::vector<fs::path> shards;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& file = entry->path();
    const std::string ending = ending_of(file);
    if (ending == "tar") {
      shards.push_back(file);
    } else if (ending == "tgz" ||
               (std::ranges::find(kPacked, ending) != kPacked.end() && ending_of(file.stem()) == "tar")) {
      reject_file(file.native(), "it is compressed, so single pictures cannot be read",
                  "unpack it to a plain tar file, or move it away");
    } else {
      skipped_files.add(file.native());
    }
  }
  constexpr std::string_view kAdvice = "data.path must hold train/*.tar and val/*.tar, or choose another data.name";
  if (error) reject_unlistable(folder, error, kAdvice);
  if (shards.empty()) reject_file(folder.native(), "no tar files", kAdvice);
  std::ranges::sort(shards);
  return shards;
}

std::vector<PackedPicture> pictures_in(const std::vector<fs::path>& shards, SkippedFiles& skipped_files, bool warns) {
  std::vector<PackedPicture> pictures;
  for (std::size_t i = 0; i < shards.size(); ++i)
    ShardReader(shards[i], static_cast<std::int32_t>(i), skipped_files, warns).add_to(pictures);
  if (pictures.empty()) reject_file(shards.front().native(), "neither it nor the other tar files hold a sample");
  return pictures;
}

std::int64_t count_classes(const std::vector<PackedPicture>& pictures) {
  return std::int64_t{std::ranges::max(pictures, {}, &PackedPicture::label).label} + 1;
}

}  // namespace

std::unique_ptr<Dataset> open_tar_dataset(const fs::path& path, Split split) {
  SkippedFiles skipped_files;
  std::vector<fs::path> shards = shards_in(path / "train", skipped_files);
  // The test split reads the training shards only to count classes; their log lines come with the training split.
  std::vector<PackedPicture> pictures = pictures_in(shards, skipped_files, /*warns=*/split == Split::kTrain);
  DatasetInfo info = info_of_pictures("tar", split, count_classes(pictures));
  if (split == Split::kTest) {
    skipped_files = {};
    shards = shards_in(path / "val", skipped_files);
    pictures = pictures_in(shards, skipped_files, /*warns=*/true);
    if (count_classes(pictures) > info.classes) {
      reject_file(shards.front().native(), concat("the tar files of val have class ", count_classes(pictures) - 1,
                                                  ", but those of train have only 0 to ", info.classes - 1));
    }
  }
  skipped_files.log(info);
  return std::make_unique<TarDataset>(std::move(info), std::move(shards), std::move(pictures));
}

}  // namespace sluice::data
