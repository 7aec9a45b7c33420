// metrics_sink: writes every record of a run as a line of metrics.jsonl (metrics_writer.h).
#pragma once

#include "core/clock.h"
#include "report/metrics_writer.h"
#include "report/run_sink.h"

namespace sluice::report {

class MetricsSink final : public RunSink {
 public:
  MetricsSink(const std::filesystem::path& file, MetricsPosition start) : writer_(file, start) {}

  void plan(const RunFacts&, const nlohmann::ordered_json& description, std::int64_t) override {
    nlohmann::ordered_json fields = description;
    fields["unix_s"] = unix_s();  // time_s leaves out the time between two starts
    event("plan", fields);
  }
  void step(const StepReport& report) override { event("step", report.fields); }
  void epoch(const EpochReport& report) override { event("epoch", report.fields); }
  void eval(const EvalRecord&, const nlohmann::ordered_json& fields, bool) override { event("eval", fields); }
  void event(const std::string& name, const nlohmann::ordered_json& fields) override { writer_.write(name, fields); }
  void summary(const SummaryReport& report) override { event("summary", report.fields); }

  [[nodiscard]] MetricsPosition sync_position() { return writer_.sync(); }
  [[nodiscard]] bool is_linked() const { return writer_.is_linked(); }
  [[nodiscard]] double time_s() const { return writer_.time_s(); }

 private:
  MetricsWriter writer_;
};

}  // namespace sluice::report
