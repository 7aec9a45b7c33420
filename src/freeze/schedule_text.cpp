#include "freeze/schedule_text.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::freeze {
namespace {

constexpr const char* kExample = "such as \"3: 7\" (7 units from epoch 3 on)";

std::string quoted(std::string_view text) { return concat('"', printable(first_line(text)), '"'); }

template <typename Number>
Number parse_number(std::string_view text, Number least, std::string_view what, std::string_view where) {
  constexpr const char* kBlanks = " \t";
  const auto begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::string_view digits = text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
  Number number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || number < least) {
    throw ConfigError(where, ": ", quoted(digits), " is not ", what, "; write a whole number from ", least, " to ",
                      std::numeric_limits<Number>::max(), ", ", kExample);
  }
  return number;
}

ScheduledFreeze parse_entry(const std::string& entry, const std::string& where) {
  const auto colon = entry.find(':');
  if (colon == std::string::npos) throw ConfigError(where, ": no ':' after an epoch; write an entry ", kExample);
  const std::string_view text = entry;
  const auto epoch = parse_number<std::int64_t>(text.substr(0, colon), 1,
                                                "an epoch that may freeze units (epoch 0 never does)", where);
  return {.epoch = epoch, .units = parse_number<int>(text.substr(colon + 1), 0, "a number of units", where)};
}

}  // namespace

std::vector<ScheduledFreeze> parse_schedule(std::span<const std::string> entries, std::string_view where) {
  if (entries.empty()) throw ConfigError(where, " is empty; write when to freeze how many units, ", kExample);
  std::vector<ScheduledFreeze> schedule;
  for (const std::string& entry : entries) {
    const std::string here = concat(where, ": ", quoted(entry));
    schedule.push_back(parse_entry(entry, here));
    if (schedule.size() > 1 && schedule.back().epoch <= schedule[schedule.size() - 2].epoch) {
      throw ConfigError(here, ": comes after the entry of epoch ", schedule[schedule.size() - 2].epoch,
                        "; sort the entries by epoch, with one entry per epoch");
    }
  }
  return schedule;
}

void require_units(std::span<const ScheduledFreeze> schedule, int units, std::string_view where) {
  for (const ScheduledFreeze& entry : schedule) {
    if (entry.units <= units) continue;
    throw ConfigError(where, ": \"", entry.epoch, ": ", entry.units, "\": the model has ", counted(units, "unit"),
                      " that may freeze; freeze at most that many");
  }
}

}  // namespace sluice::freeze
