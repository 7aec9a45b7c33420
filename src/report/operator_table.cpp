#include "report/operator_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"

namespace sluice::report {
namespace {

using profiler::MachinePeaks;
using profiler::OperatorMean;
using profiler::PassOperators;

constexpr std::size_t kSlowest = 5;
constexpr double kLeastShare = 0.01;  // smallest share of the pass's time for a row, except the first

std::string billions(double number) { return fixed(number * 1e-9, number < 1e10 ? 2 : 1); }

TextRow operator_row(const OperatorMean& one, double pass_s, const MachinePeaks& peaks) {
  const profiler::Roofline line = profiler::roofline_of(one.flops, one.bytes, one.self_s, peaks);
  const auto or_dash = [](double amount, const std::string& text) { return amount > 0 ? text : std::string("-"); };
  return {concat("  ", one.name),
          fixed(one.self_s * 1e3, 3),
          percent(pass_s > 0 ? one.self_s / pass_s : 0),
          fixed(one.calls, one.calls < 10 && one.calls != static_cast<double>(static_cast<int>(one.calls)) ? 1 : 0),
          or_dash(one.flops, billions(line.flops_per_s)),
          or_dash(one.flops, percent(line.of_flops)),
          or_dash(one.bytes, billions(line.bytes_per_s)),
          or_dash(one.bytes, percent(line.of_bytes)),
          profiler::name_of(line.bound)};
}

OperatorMean sum_of(std::vector<OperatorMean>::const_iterator begin, std::vector<OperatorMean>::const_iterator end) {
  OperatorMean sum{.name = counted(end - begin, "other")};
  for (; begin != end; ++begin) {
    sum.calls += begin->calls;
    sum.self_s += begin->self_s;
    sum.flops += begin->flops;
    sum.bytes += begin->bytes;
  }
  return sum;
}

void add_pass(const std::string& title, const PassOperators& pass, const MachinePeaks& peaks,
              std::vector<TextRow>& rows) {
  if (pass.operators.empty()) return;
  const auto& all = pass.operators;
  double flops = 0, bytes = 0, calls = 0;
  for (const OperatorMean& one : all) flops += one.flops, bytes += one.bytes, calls += one.calls;
  TextRow whole = operator_row({title, calls, pass.watched_s, flops, bytes}, pass.watched_s, peaks);
  whole.front() = title;
  whole.back() = profiler::name_of(profiler::bound_of(pass, peaks));
  rows.push_back(std::move(whole));
  const std::size_t most = std::min(kSlowest, all.size());
  std::size_t shown = 1;
  while (shown < most && all[shown].self_s >= kLeastShare * pass.watched_s) ++shown;
  for (std::size_t i = 0; i < shown; ++i) rows.push_back(operator_row(all[i], pass.watched_s, peaks));
  if (shown < all.size())
    rows.push_back(
        operator_row(sum_of(all.begin() + static_cast<std::ptrdiff_t>(shown), all.end()), pass.watched_s, peaks));
}

}  // namespace

std::string operator_table(const profiler::OperatorProfile& profile) {
  std::vector<TextRow> rows{
      {"layer, operator", "self ms", "share", "calls", "GFLOP/s", "of peak", "GB/s", "of peak", "bound by"}};
  for (const profiler::LayerOperators& layer : profile.layers) {
    add_pass(concat(layer.layer, " forward"), layer.forward, profile.peaks, rows);
    add_pass(concat(layer.layer, " backward"), layer.backward, profile.peaks, rows);
  }
  return text_table(rows, std::array{Align::kLeft, Align::kRight});
}

}  // namespace sluice::report
