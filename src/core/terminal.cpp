#include "core/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "core/text.h"

namespace sluice {
namespace {

constexpr int kUsualColumns = 80;
constexpr std::string_view kFieldGap = "  ";

struct Range {
  std::uint32_t first, last;
};

// Characters that terminals show two columns wide.
constexpr std::array kWide{Range{0x1100, 0x115F}, Range{0x2E80, 0xA4CF},   Range{0xAC00, 0xD7A3},
                           Range{0xF900, 0xFAFF}, Range{0xFE30, 0xFE6F},   Range{0xFF00, 0xFF60},
                           Range{0xFFE0, 0xFFE6}, Range{0x1F300, 0x1FAFF}, Range{0x20000, 0x3FFFD}};

struct Character {
  std::size_t bytes = 1;
  int columns = 1;
};

Character character_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  if (bytes == 1 || at + bytes > text.size()) return {};
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xC0U) != 0x80U) return {};
    code = code << 6U | (next & 0x3FU);
  }
  const bool is_wide =
      std::ranges::any_of(kWide, [&](Range range) { return code >= range.first && code <= range.last; });
  return {bytes, is_wide ? 2 : 1};
}

std::size_t fitting_bytes(std::string_view text, int columns) {
  std::size_t end = 0;
  for (int used = 0; end < text.size();) {
    const Character next = character_at(text, end);
    used += next.columns;
    if (used > columns) break;
    end += next.bytes;
  }
  return end;
}

}  // namespace

bool can_redraw(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

bool takes_colours(int descriptor) {
  const char* const refusal = std::getenv("NO_COLOR");
  return can_redraw(descriptor) && (refusal == nullptr || *refusal == '\0');
}

int terminal_columns(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const text = std::getenv("COLUMNS");
  const std::string_view columns = text == nullptr ? "" : text;
  int number = 0;
  std::from_chars(columns.data(), columns.data() + columns.size(), number);
  return number > 0 ? number : kUsualColumns;
}

std::string fit_to_width(std::string_view line, int columns) {
  std::string fitted = printable(line);
  for (;;) {
    const std::size_t end = fitting_bytes(fitted, columns);
    if (end == fitted.size()) return fitted;
    const std::size_t gap = fitted.rfind(kFieldGap);
    const std::size_t field_end = gap == std::string::npos ? gap : fitted.find_last_not_of(' ', gap);
    fitted.resize(field_end == std::string::npos ? end : field_end + 1);
  }
}

}  // namespace sluice
