#include "text/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "storage/checksum.h"

namespace sluice::text {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

using Bytes = std::span<const std::byte>;

template <typename Number>
Number load(const std::byte* from, std::uint64_t index = 0) {
  Number number;
  std::memcpy(&number, from + index * sizeof(Number), sizeof(Number));
  return number;
}

constexpr std::string_view kAgain = "; make the file again";

void require(bool ok, const std::string& name, const std::string& what) {
  if (!ok) throw DataError(name, ": ", what, kAgain);
}

void require_size(std::uint64_t found, std::uint64_t expected, const std::string& name) {
  if (found == expected) return;
  throw DataError(name, ": ", found < expected ? "is cut short" : "is too long", ": it has ", found,
                  " bytes, expected ", expected, kAgain);
}

TokenLayout parse_ours(Bytes file, const std::string& name) {
  if (file.size() < sizeof(TokenFileHeader)) require_size(file.size(), sizeof(TokenFileHeader), name);
  const auto header = load<TokenFileHeader>(file.data());
  if (header.version != 1) {
    throw DataError(name, ": has version ", header.version, " of the format, expected 1; make it with this sluice");
  }
  const std::uint64_t most = file.size();
  require((header.width == 2 || header.width == 4) && header.tokens <= most && header.documents <= most &&
              header.vocabulary <= std::uint64_t{1} << 31,
          name, "its header is damaged");
  const std::uint64_t ids_bytes = header.tokens * header.width;
  const std::uint64_t ends_at = sizeof header + ids_bytes + padding_after(ids_bytes);
  require_size(file.size(), ends_at + header.documents * sizeof(std::uint64_t), name);
  const auto text_at = [&](std::size_t offset) {
    return std::string_view(reinterpret_cast<const char*>(file.data()) + offset, sizeof header.tokenizer);
  };
  TokenLayout layout{.width = static_cast<int>(header.width),
                     .tokens = header.tokens,
                     .documents = header.documents,
                     .vocabulary = header.vocabulary,
                     .ids = file.data() + sizeof header,
                     .ends = file.data() + ends_at,
                     .tokenizer = text_at(offsetof(TokenFileHeader, tokenizer)),
                     .source = text_at(offsetof(TokenFileHeader, source))};
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i < header.documents; ++i) {
    const std::uint64_t end = layout.end_of(i);
    require(before <= end && end <= header.tokens, name,
            concat("document ", i, " ends at token ", end, ", before it begins or after the last token"));
    before = end;
  }
  require(before == header.tokens, name, concat("its documents end at token ", before, " of ", header.tokens));
  return layout;
}

constexpr std::uint64_t kLlmcHeaderBytes = 1024;
constexpr std::int32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;

TokenLayout parse_llmc(Bytes file, const std::string& name) {
  if (file.size() < kLlmcHeaderBytes) require_size(file.size(), kLlmcHeaderBytes, name);
  const bool is_wide = load<std::int32_t>(file.data()) == kLlmcLlama3;
  const auto version = load<std::int32_t>(file.data(), 1);
  const auto tokens = static_cast<std::uint32_t>(load<std::int32_t>(file.data(), 2));
  const std::int32_t expected = is_wide ? 7 : 1;
  if (version != expected) {
    throw DataError(name, ": has version ", version, " of llm.c's format, expected ", expected, kAgain);
  }
  const int width = is_wide ? 4 : 2;
  require_size(file.size(), kLlmcHeaderBytes + std::uint64_t{tokens} * static_cast<std::uint64_t>(width), name);
  return {.width = width, .tokens = tokens, .ids = file.data() + kLlmcHeaderBytes};
}

// Megatron's codes of number types. Only these two are types of ids.
int width_of_megatron(std::uint8_t code, const std::string& name) {
  if (code == 8) return 2;
  if (code == 4) return 4;
  throw DataError(name, ": its ids have the type ", int{code},
                  " of Megatron, expected 8 (uint16) or 4 (int32); make the file again with one of these");
}

bool has_megatron_magic(Bytes index) {
  constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
  return index.size() >= kMagic.size() && std::memcmp(index.data(), kMagic.data(), kMagic.size()) == 0;
}

// Sequences must lie one after another, from the first to the last token.
void check_sequences(const TokenLayout& layout, const std::byte* sizes, const std::string& name) {
  std::uint64_t token = 0;
  for (std::uint64_t i = 0; i < layout.sequence_count; ++i) {
    require(load<std::uint64_t>(layout.sequences, i) == token * static_cast<std::uint64_t>(layout.width), name,
            concat("its .idx does not fit: sequence ", i, " does not begin where the one before it ends"));
    const auto size = load<std::int32_t>(sizes, i);
    require(size >= 0, name, concat("its .idx does not fit: sequence ", i, " has ", size, " tokens"));
    token += static_cast<std::uint64_t>(size);
  }
  require(token == layout.tokens, name,
          concat("its .idx does not fit: the index has ", token, " tokens, the file ", layout.tokens));
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i <= layout.documents; ++i) {
    const auto first = load<std::uint64_t>(layout.first_sequences, i);
    const std::uint64_t last = i == layout.documents ? layout.sequence_count : i == 0 ? 0 : before;
    require(
        first >= last && first <= (i == 0 ? 0 : layout.sequence_count), name,
        concat("its .idx does not fit: document ", i, " begins at sequence ", first, " of ", layout.sequence_count));
    before = first;
  }
}

// Megatron's index of a .bin file that is not of another kind; empty: it has no index.
std::filesystem::path index_of(const std::filesystem::path& file) {
  if (file.extension() != ".bin") return {};
  std::filesystem::path index = file;
  index.replace_extension(".idx");
  std::error_code ignored;
  return std::filesystem::exists(index, ignored) ? index : std::filesystem::path();
}

}  // namespace

std::uint64_t TokenLayout::end_of(std::uint64_t document) const {
  if (ends != nullptr) return load<std::uint64_t>(ends, document);
  if (first_sequences == nullptr) return tokens;
  const auto sequence = load<std::uint64_t>(first_sequences, document + 1);
  return sequence == sequence_count ? tokens
                                    : load<std::uint64_t>(sequences, sequence) / static_cast<std::uint64_t>(width);
}

TokenLayout parse_megatron(Bytes file, Bytes index, const std::string& name) {
  constexpr std::size_t kHeaderBytes = 34;
  const std::string index_name = concat("the index of ", name);
  require(has_megatron_magic(index), index_name, "is not an .idx file of Megatron");
  if (index.size() < kHeaderBytes) require_size(index.size(), kHeaderBytes, index_name);
  const auto version = load<std::uint64_t>(index.data() + 9);
  if (version != 1) throw DataError(index_name, ": has version ", version, ", expected 1", kAgain);
  const auto sequences = load<std::uint64_t>(index.data() + 18);
  const auto documents = load<std::uint64_t>(index.data() + 26);  // one more than there are
  require(sequences <= index.size() && documents <= index.size() && documents > 0, index_name, "its header is damaged");
  require_size(index.size(), kHeaderBytes + sequences * 12 + documents * 8, index_name);
  const int width = width_of_megatron(load<std::uint8_t>(index.data() + 17), index_name);
  const std::byte* sizes = index.data() + kHeaderBytes;
  require(file.size() % static_cast<std::uint64_t>(width) == 0, name,
          concat("its ", file.size(), " bytes are not a whole number of tokens"));
  TokenLayout layout{.width = width,
                     .tokens = file.size() / static_cast<std::uint64_t>(width),
                     .documents = documents - 1,
                     .ids = file.data(),
                     .first_sequences = sizes + sequences * 12,
                     .sequences = sizes + sequences * 4,
                     .sequence_count = sequences};
  check_sequences(layout, sizes, name);
  return layout;
}

TokenLayout parse_token_file(Bytes file, const std::string& name) {
  const TokenFileHeader ours;
  if (file.size() >= sizeof ours.magic && std::memcmp(file.data(), ours.magic, sizeof ours.magic) == 0) {
    return parse_ours(file, name);
  }
  const auto magic = file.size() < 4 ? 0 : load<std::int32_t>(file.data());
  if (magic == kLlmcGpt2 || magic == kLlmcLlama3) return parse_llmc(file, name);
  if (has_megatron_magic(file)) throw DataError(name, ": is an index of Megatron; give the .bin file beside it");
  if (!name.ends_with(".bin")) {
    throw DataError(
        name, ": is not a token file; give one of `sluice tokenize`, or a .bin file of nanoGPT, llm.c or Megatron");
  }
  require(file.size() % 2 == 0, name, concat("its ", file.size(), " bytes are not a whole number of uint16 tokens"));
  return {.width = 2, .tokens = file.size() / 2, .ids = file.data()};
}

TokenFile::Mapping::Mapping(const std::filesystem::path& file) {
  if (file.empty()) return;
  const FileDescriptor handle(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block
  const auto fail = [&](int error) {
    const std::string what = concat(file.string(), ": cannot be read: ", std::generic_category().message(error));
    if (is_file_limit(error)) too_many_open_files(what);
    throw DataError(what, "; give the path of a token file");
  };
  if (!handle.is_open()) fail(errno);
  struct stat info {};
  if (::fstat(handle.get(), &info) != 0) fail(errno);
  if (!S_ISREG(info.st_mode)) throw DataError(file.string(), ": is not a regular file; give the path of a token file");
  if (info.st_size == 0) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const pages = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, handle.get(), 0);
  if (pages == MAP_FAILED) fail(errno);
  bytes_ = {static_cast<const std::byte*>(pages), size};
}

TokenFile::Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

TokenFile::Mapping::Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

TokenFile::TokenFile(std::filesystem::path file, std::uint64_t vocabulary)
    : path_(std::move(file)),
      file_(path_),
      index_(index_of(path_)),
      layout_(index_of(path_).empty() ? parse_token_file(file_.bytes(), path_.string())
                                      : parse_megatron(file_.bytes(), index_.bytes(), path_.string())) {
  if (vocabulary != 0 && layout_.vocabulary > vocabulary) {
    throw DataError(path_.string(), ": its tokens are of a vocabulary of ", layout_.vocabulary, " ids, more than ",
                    vocabulary, "; take the tokenizer that it was made with");
  }
  const std::uint64_t known = layout_.vocabulary != 0 ? layout_.vocabulary : vocabulary;
  end_id_ = known != 0 ? known : std::uint64_t{1} << 31;
}

std::uint64_t TokenFile::document_begin(std::uint64_t document) const {
  check(document <= documents(), "a document of the file");
  return document == 0 ? 0 : layout_.end_of(document - 1);
}

std::int64_t TokenFile::token(std::uint64_t i) const {
  std::int64_t id = 0;
  copy(i, 1, &id);
  return id;
}

void TokenFile::copy(std::uint64_t begin, std::uint64_t count, std::int64_t* out) const {
  check(begin <= tokens() && count <= tokens() - begin, "tokens of the file");
  std::int64_t largest = 0;
  const auto take = [&]<typename Id>(Id) {
    const std::byte* from = layout_.ids + begin * sizeof(Id);
    for (std::uint64_t i = 0; i < count; ++i) {
      out[i] = load<Id>(from, i);
      largest = std::max(largest, out[i]);
    }
  };
  layout_.width == 2 ? take(std::uint16_t{}) : take(std::uint32_t{});
  if (static_cast<std::uint64_t>(largest) < end_id_) return;
  const auto place = static_cast<std::uint64_t>(std::max_element(out, out + count) - out);
  throw DataError(path_.string(), ": token ", begin + place, " is ", largest, ", but the vocabulary has ", end_id_,
                  " ids; take the tokenizer that the file was made with");
}

bool TokenFile::may_be_of(const std::filesystem::path& tokenizer) const {
  return layout_.tokenizer.empty() || layout_.tokenizer == storage::digest_file(tokenizer).xxh3_128;
}

void TokenFile::verify() const {
  if (layout_.source.empty()) return;
  const Bytes file = file_.bytes();
  storage::Digester digester;
  digester.update(file.subspan(sizeof(TokenFileHeader)));
  digester.update(file.first(offsetof(TokenFileHeader, checksum)));
  const auto header = load<TokenFileHeader>(file.data());
  require(digester.digest().xxh3_128 == std::string_view(header.checksum, sizeof header.checksum), path_.string(),
          "is damaged: its checksum differs");
}

}  // namespace sluice::text
