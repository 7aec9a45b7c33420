#include "core/progress_line.h"

#include <utility>

#include "core/log.h"

namespace sluice {
namespace {

constexpr Nanoseconds kRedraw = 100'000'000;
constexpr Nanoseconds kLogAgain = 5'000'000'000;

}  // namespace

ProgressLine::ProgressLine(Clock clock)
    : clock_(std::move(clock)), is_on_terminal_(progress_is_shown()), shown_at_(clock_()) {}

ProgressLine::~ProgressLine() {
  if (is_on_terminal_) show_progress("");
}

void ProgressLine::show(const std::function<std::string()>& text) {
  const Nanoseconds now = clock_();
  if (now - shown_at_ < (is_on_terminal_ ? kRedraw : kLogAgain)) return;
  shown_at_ = now;
  is_on_terminal_ ? show_progress(text()) : log_info(text());
}

}  // namespace sluice
