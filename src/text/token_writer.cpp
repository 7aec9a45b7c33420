#include "text/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/failpoint.h"
#include "storage/files.h"
#include "text/token_file.h"

namespace sluice::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

fs::path beside(const fs::path& file, const char* ending) { return concat(file.string(), ending); }

FileDescriptor open_to_write(const fs::path& file) {
  FileDescriptor handle(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!handle.is_open()) storage::throw_storage_error(errno, "open", file);
  return handle;
}

std::span<const std::byte> bytes_of(const auto& values) { return std::as_bytes(std::span(values)); }

void read_at(const FileDescriptor& file, const fs::path& path, std::span<std::byte> out, std::uint64_t offset) {
  while (!out.empty()) {
    const auto count =
        uninterrupted([&] { return ::pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset)); });
    if (count < 0) storage::throw_storage_error(errno, "read", path);
    if (count == 0) throw StorageError(path.string(), " is shorter than it was; remove it and its .progress file");
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

// Calls take(bytes) for each block of a part of the file.
template <typename Take>
void for_each_block(const FileDescriptor& file, const fs::path& path, std::uint64_t begin, std::uint64_t end,
                    const Take& take) {
  std::vector<std::byte> block(kCopyBytes);
  while (begin < end) {
    const auto bytes = std::span(block).first(std::min<std::uint64_t>(kCopyBytes, end - begin));
    read_at(file, path, bytes, begin);
    take(bytes);
    begin += bytes.size();
  }
}

void cut(const FileDescriptor& file, const fs::path& path, std::uint64_t bytes) {
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) storage::throw_storage_error(errno, "write", path);
  ::lseek(file.get(), 0, SEEK_END);
}

void sync(const FileDescriptor& file, const fs::path& path) {
  if (::fdatasync(file.get()) != 0) storage::throw_storage_error(errno, "write", path);
}

}  // namespace

TokenWriter::TokenWriter(fs::path file, TokenFileLabel label)
    : path_(std::move(file)),
      part_path_(beside(path_, ".part")),
      ends_path_(beside(path_, ".ends")),
      progress_path_(beside(path_, ".progress")),
      label_(std::move(label)),
      width_(label_.vocabulary <= 65536 ? 2 : 4) {
  read_progress();
  part_ = open_to_write(part_path_);
  ends_ = open_to_write(ends_path_);
  const std::uint64_t ids_end = sizeof(TokenFileHeader) + progress_.tokens * width_;
  cut(part_, part_path_, ids_end);
  cut(ends_, ends_path_, progress_.documents * sizeof(std::uint64_t));
  for_each_block(part_, part_path_, sizeof(TokenFileHeader), ids_end, [&](auto bytes) { digester_.update(bytes); });
}

// A file of another text, of other options, or damaged: begins again.
void TokenWriter::read_progress() {
  std::error_code error;
  if (!fs::exists(progress_path_, error)) return;
  const auto json = nlohmann::json::parse(storage::read_text(progress_path_), nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  };
  if (!json.is_object() || json.value("source", "") != label_.source ||
      json.value("changed", std::int64_t{0}) != label_.changed)
    return;
  const TokenProgress read{number("input_bytes"), number("records"), number("tokens"), number("documents")};
  const auto size_of = [&](const fs::path& file) {
    const auto size = fs::file_size(file, error);
    return error ? 0 : size;
  };
  if (size_of(part_path_) >= sizeof(TokenFileHeader) + read.tokens * width_ &&
      size_of(ends_path_) >= read.documents * sizeof(std::uint64_t)) {
    progress_ = read;
  }
}

void TokenWriter::write(const FileDescriptor& file, const fs::path& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto count = uninterrupted([&] { return ::write(file.get(), bytes.data(), bytes.size()); });
    if (count < 0) storage::throw_storage_error(errno, "write", path, bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void TokenWriter::append(std::span<const TokenId> ids, std::span<const std::uint64_t> lengths) {
  buffer_.clear();
  for (const TokenId id : ids) {
    const auto number = static_cast<std::uint32_t>(id);
    buffer_.append(reinterpret_cast<const char*>(&number), width_);  // little-endian: the low bytes come first
  }
  std::vector<std::uint64_t> ends;
  for (const std::uint64_t length : lengths) ends.push_back(progress_.tokens += length);
  progress_.documents += lengths.size();
  write(part_, part_path_, bytes_of(buffer_));
  write(ends_, ends_path_, bytes_of(ends));
  digester_.update(bytes_of(buffer_));
}

void TokenWriter::save(std::uint64_t input_bytes, std::uint64_t records) {
  progress_.input_bytes = input_bytes;
  progress_.records = records;
  sync(part_, part_path_);
  sync(ends_, ends_path_);
  const nlohmann::ordered_json json{{"source", label_.source},    {"changed", label_.changed},
                                    {"input_bytes", input_bytes}, {"records", records},
                                    {"tokens", progress_.tokens}, {"documents", progress_.documents}};
  storage::write_text_atomically(progress_path_, json.dump() + "\n");
}

void TokenWriter::finish() {
  const std::string padding(padding_after(progress_.tokens * width_), '\0');
  const auto append_bytes = [&](std::span<const std::byte> bytes) {
    write(part_, part_path_, bytes);
    digester_.update(bytes);
  };
  append_bytes(bytes_of(padding));
  for_each_block(ends_, ends_path_, 0, progress_.documents * sizeof(std::uint64_t), append_bytes);
  TokenFileHeader header{
      .width = width_, .tokens = progress_.tokens, .documents = progress_.documents, .vocabulary = label_.vocabulary};
  const auto put = [](std::string_view text, char(&out)[32]) {
    check(text.size() == sizeof out, "a digest of 32 digits");
    std::memcpy(out, text.data(), sizeof out);
  };
  put(label_.tokenizer, header.tokenizer);
  put(label_.source, header.source);
  digester_.update(std::as_bytes(std::span(&header, 1)).first(offsetof(TokenFileHeader, checksum)));
  put(digester_.digest().xxh3_128, header.checksum);
  if (::pwrite(part_.get(), &header, sizeof header, 0) != sizeof header)
    storage::throw_storage_error(errno, "write", part_path_);
  sync(part_, part_path_);
  if (::rename(part_path_.c_str(), path_.c_str()) != 0) storage::throw_storage_error(errno, "replace", path_);
  storage::sync_directory(path_.parent_path());
  failpoint("tokenize-renamed");
  remove_leftovers(path_);
}

void TokenWriter::remove_leftovers(const fs::path& file) {
  std::error_code ignored;
  for (const char* ending : {".progress", ".ends", ".part"}) fs::remove(beside(file, ending), ignored);
}

}  // namespace sluice::text
