#include "report/record_lines.h"

#include <string.h>
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "report/record_fields.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;

std::ifstream open_records(const fs::path& file) {
  const std::string name = printable(file.string());
  if (!fs::is_regular_file(status_of(file)))
    throw DataError(name, " is not a file; give the --run-dir of a `sluice train`");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (in.is_open()) return in;
  const int error = errno;
  const std::string reason = error != 0 ? std::generic_category().message(error) : "it cannot be opened";
  const std::string what = concat(name, " cannot be read: ", reason);
  if (is_file_limit(error)) too_many_open_files(what);
  throw DataError(what, "; check its permissions");
}

class HeadOfStep {
 public:
  using Text = std::string;

  HeadOfStep() { head_.get_ref<nlohmann::ordered_json::object_t&>().reserve(kFields); }  // avoids copies

  [[nodiscard]] bool is_whole() const { return is_whole_; }
  nlohmann::ordered_json& head() { return head_; }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const Text&) { return put(value); }
  bool string(Text& value) { return put(value); }
  bool binary(nlohmann::ordered_json::binary_t&) { return false; }
  bool start_object(std::size_t) { return depth_++ == 0; }
  bool end_object() { return false; }
  bool start_array(std::size_t) { return false; }
  bool end_array() { return false; }
  bool parse_error(std::size_t, const Text&, const nlohmann::detail::exception&) { return false; }
  bool key(Text& name) {
    is_whole_ = name == "load_ms";
    if (!is_whole_) name_ = name;
    return !is_whole_;
  }

 private:
  // Appends without searching for the name, which would take as long as reading the value.
  template <typename Value>
  bool put(Value&& value) {
    using Object = nlohmann::ordered_json::object_t;
    static_cast<Object::Container&>(head_.get_ref<Object&>()).emplace_back(name_, std::forward<Value>(value));
    return true;
  }

  static constexpr std::size_t kFields = 16;

  nlohmann::ordered_json head_ = nlohmann::ordered_json::object();
  Text name_;
  int depth_ = 0;
  bool is_whole_ = false;
};

constexpr std::string_view kStepLine = R"({"event":"step",)";
constexpr std::string_view kDropped = R"("spans_dropped")";  // only in few lines, which are parsed whole
constexpr std::uintmax_t kBytesInWhole = 50'000'000;

// Detects nesting too deep for recursive functions. Short lines cannot be that deep. Brackets in strings count as well:
// no record has a thousand unclosed ones.
bool is_too_deep(std::string_view line) {
  constexpr std::size_t kHarmless = 65'536;
  constexpr std::int64_t kDeepest = 1000;
  if (line.size() < kHarmless) return false;
  std::int64_t depth = 0, deepest = 0;
  for (const char c : line) {
    depth += (c == '[' || c == '{' ? 1 : 0) - (c == ']' || c == '}' ? 1 : 0);
    deepest = std::max(deepest, depth);
  }
  return deepest > kDeepest;
}

nlohmann::ordered_json whole_record(const std::string& line) {
  if (is_too_deep(line)) return nlohmann::ordered_json::value_t::discarded;
  return nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
}

// Only memmem() is fast if the first letter of the word is frequent.
bool reports_drops(const std::string& line) {
  return ::memmem(line.data(), line.size(), kDropped.data(), kDropped.size()) != nullptr;
}

}  // namespace

nlohmann::ordered_json head_of_step(const std::string& line) {
  HeadOfStep head;
  if (line.starts_with(kStepLine) && line.ends_with('}'))
    (void)nlohmann::ordered_json::sax_parse(line, &head, nlohmann::ordered_json::input_format_t::json,
                                            /*strict=*/false);
  if (!head.is_whole()) return nlohmann::ordered_json::value_t::discarded;
  const auto samples = number_at(head.head(), "samples"), ms = number_at(head.head(), "step_ms");
  if (samples && ms && *ms > 0) head.head()["samples_per_s"] = *samples / *ms * 1e3;
  return std::move(head.head());
}

std::int64_t whole_lines_of(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(file, error);
  return error ? 1 : static_cast<std::int64_t>(bytes / kBytesInWhole + 1);
}

fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    throw DataError(printable(path.string()), " cannot be read: ", error.message(),
                    "; check its permissions and those of its folders");
  return status;
}

LineDamage read_records(const fs::path& file, const TakeRecord& take, std::int64_t every) {
  std::ifstream in = open_records(file);
  LineDamage damage;
  std::int64_t steps = 0;
  for (std::string line; std::getline(in, line);) {
    const bool is_last = in.eof();  // without a line break
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    nlohmann::ordered_json record = nlohmann::ordered_json::value_t::discarded;
    const bool may_be_short = every > 1 && line.starts_with(kStepLine) && steps++ % every != 0;
    if (may_be_short && !reports_drops(line)) record = head_of_step(line);
    if (record.is_discarded()) record = whole_record(line);
    if (const auto event = text_at(record, "event")) {
      take(record, *event);
    } else if (is_last && line.starts_with('{')) {
      damage.is_torn = true;
    } else {
      ++damage.unreadable_lines;
    }
  }
  if (in.bad()) throw DataError(printable(file.string()), " cannot be read to its end; check the disk");
  return damage;
}

}  // namespace sluice::report
