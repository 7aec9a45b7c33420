#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/options.h"
#include "app/process.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "core/text_table.h"
#include "profiler/layer_profile.h"
#include "train/plan/what_if.h"
#include "train/setup/run_state.h"
#include "train/study/memory_proof.h"
#include "tune/memory_table.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;
using tune::Fit;
using tune::MemoryCell;
using tune::MemoryQuestion;

struct MemoryArguments {
  ConfigArguments config;
  OutputArguments output;
  std::string profile;
  std::string limit;
  std::vector<std::int64_t> batches;
  std::vector<int> chunks;
  int processes = 1;
  bool prove = false;
  double budget_s = 120;
};

struct MemoryAnswer {
  std::string device;
  std::uint64_t limit = 0;
  std::vector<int> chunks;
  std::vector<std::vector<MemoryCell>> rows;  // [batch][chunks]
  std::vector<MemoryCell> largest;            // one entry per number of chunks for which some batch fits
  std::vector<train::ProofRun> proof;

  // True if a run needed more than its predicted bound.
  [[nodiscard]] bool is_refuted() const { return !proof.empty() && proof.front().end == train::ProofEnd::kOutOfMemory; }
  // The largest batch with the fewest chunks; if a run refuted it, the batch that ran. Null if nothing fits.
  [[nodiscard]] const MemoryCell* best() const {
    if (is_refuted()) return proof.back().end == train::ProofEnd::kRan ? &proof.back().cell : nullptr;
    const auto found = std::ranges::max_element(largest, {}, &MemoryCell::global_batch);
    return found == largest.end() ? nullptr : &*found;
  }
};

MemoryAnswer answer_of(const MemoryQuestion& question, const MemoryArguments& arguments) {
  MemoryAnswer answer{.limit = question.limit, .chunks = arguments.chunks};
  if (answer.chunks.empty()) answer.chunks = tune::usual_chunks(question);
  const auto batches = arguments.batches.empty() ? tune::usual_batches(question, answer.chunks) : arguments.batches;
  for (const std::int64_t batch : batches) {
    auto& row = answer.rows.emplace_back();
    for (const int chunks : answer.chunks) row.push_back(tune::memory_cell(question, batch, chunks));
  }
  for (const int chunks : answer.chunks)
    if (const auto cell = tune::largest_batch(question, chunks)) answer.largest.push_back(*cell);
  return answer;
}

ordered_json json_of_cell(const MemoryCell& cell) {
  ordered_json json{{"global_batch", cell.global_batch}, {"chunks", cell.chunks}, {"fit", tune::to_word(cell.fit)}};
  if (cell.fit == Fit::kImpossible) {
    json["why"] = cell.why;
    return json;
  }
  json["expected_bytes"] = cell.expected;
  json["bound_bytes"] = cell.bound;
  json["plan"] = train::plan_json(cell.plan);
  return json;
}

ordered_json json_of_proof(const train::ProofRun& run) {
  ordered_json json = json_of_cell(run.cell);
  json["end"] = train::to_word(run.end);
  if (!run.why.empty()) json["why"] = run.why;
  if (run.peak_bytes > 0) json["peak_bytes"] = run.peak_bytes;
  return json;
}

ordered_json json_of_answer(const MemoryAnswer& answer) {
  ordered_json cells = ordered_json::array(), largest = ordered_json::array(), proof = ordered_json::array();
  for (const auto& row : answer.rows)
    for (const MemoryCell& cell : row) cells.push_back(json_of_cell(cell));
  for (const MemoryCell& cell : answer.largest) largest.push_back(json_of_cell(cell));
  for (const train::ProofRun& run : answer.proof) proof.push_back(json_of_proof(run));
  ordered_json json{{"limit_bytes", answer.limit}, {"device", answer.device}, {"cells", cells}, {"largest", largest}};
  json["best"] = answer.best() == nullptr ? ordered_json() : json_of_cell(*answer.best());
  if (!answer.proof.empty()) json["proof"] = proof;
  return json;
}

std::string text_of_cell(const MemoryCell& cell) {
  if (cell.fit == Fit::kImpossible) return "-";
  return concat(cell.fit == Fit::kOutOfMemory ? "OOM " : "", human_bytes(cell.expected));
}

std::string boundary_table(const MemoryAnswer& answer) {
  TextRow head{"batch"};
  for (const int chunks : answer.chunks) head.push_back(concat("chunks ", chunks));
  std::vector<TextRow> rows{head};
  for (const auto& cells : answer.rows) {
    TextRow row{std::to_string(cells.front().global_batch)};
    for (const MemoryCell& cell : cells) row.push_back(text_of_cell(cell));
    rows.push_back(row);
  }
  TextRow last{"largest"};
  for (const int chunks : answer.chunks) {
    const auto found = std::ranges::find(answer.largest, chunks, &MemoryCell::chunks);
    last.push_back(found == answer.largest.end() ? "none" : std::to_string(found->global_batch));
  }
  rows.push_back(last);
  return text_table(rows, std::array{Align::kRight});
}

std::string reasons(const MemoryAnswer& answer) {
  std::vector<std::string> seen;
  std::string text;
  for (const auto& row : answer.rows) {
    for (const MemoryCell& cell : row) {
      if (cell.fit != Fit::kImpossible || std::ranges::find(seen, cell.why) != seen.end()) continue;
      seen.push_back(cell.why);
      text += concat("\n-: ", cell.why);
    }
  }
  return text;
}

std::string text_of_proof(const train::ProofRun& run) {
  return concat("\nglobal batch ", run.cell.global_batch, " in ", counted(run.cell.chunks, "micro-batch"), ": ",
                train::to_word(run.end),
                run.peak_bytes > 0 ? concat(", ", human_bytes(run.peak_bytes), " at most, expected ",
                                            human_bytes(run.cell.expected), ", bound ", human_bytes(run.cell.bound))
                                   : "",
                run.why.empty() ? "" : concat(": ", run.why));
}

std::string text_of_answer(const MemoryAnswer& answer) {
  std::string text =
      concat("Expected memory of the fullest device; OOM: a run may need more than ", human_bytes(answer.limit), " (",
             answer.device, ")\n\n", boundary_table(answer), "\n", reasons(answer));
  const MemoryCell* const best = answer.best();
  if (answer.is_refuted()) {
    text += concat("\na global batch of ", answer.proof.front().cell.global_batch,
                   " should fit but ran out of memory: the bounds of this profile are too low; measure a profile "
                   "with a batch near it");
  }
  if (best != nullptr) {
    text += concat("\nthe largest global batch", answer.is_refuted() ? " that ran: " : ": ", best->global_batch, " in ",
                   counted(best->chunks, "micro-batch"), ", expected ", human_bytes(best->expected), ", at most ",
                   human_bytes(best->bound), " a device");
  } else if (!answer.is_refuted()) {
    return text + "\nno batch fits; use more pipeline.stages, or pipeline.recompute = \"layer\"";
  }
  for (const train::ProofRun& run : answer.proof) text += text_of_proof(run);
  return text;
}

void run_memory(const MemoryArguments& arguments) {
  ConfigArguments limited = arguments.config;
  if (!arguments.limit.empty()) limited.sets.push_back(concat("device.memory_limit=", arguments.limit));
  const config::Config config = limited.load();
  const profiler::LayerProfile profile =
      train::fitted_profile(config, profiler::read_profile(arguments.profile), arguments.profile);
  const MemoryQuestion question = train::memory_question(config, profile, arguments.profile, arguments.processes);
  MemoryAnswer answer = answer_of(question, arguments);
  answer.device = profile.fingerprint.device;
  if (arguments.prove && answer.best() != nullptr) {
    turn_broken_pipes_into_errors();
    answer.proof = train::prove_largest(config, question, *answer.best(), arguments.budget_s);
  }
  arguments.output.print(json_of_answer(answer), text_of_answer(answer));
}

}  // namespace

void add_memory(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "memory", "List the global batches that fit into memory, by number of micro-batches, from a profile");
  const auto arguments = std::make_shared<MemoryArguments>();
  arguments->config.add_to(*command);
  command
      ->add_option("--profile", arguments->profile,
                   "Profile of this model, by `sluice profile`; the command needs no device, data or model")
      ->type_name("FILE")
      ->required()
      ->check(not_empty);
  command
      ->add_option("--limit", arguments->limit,
                   "Memory of each device, for example 16GiB (default: device.memory_limit)")
      ->type_name("SIZE")
      ->check(memory_size);
  command
      ->add_option("--batches", arguments->batches,
                   "Global batches of the table (default: the configured one, its halves, and its doubles up to the "
                   "first that does not fit)")
      ->delimiter(',')
      ->type_name("N[,N...]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command
      ->add_option("--chunks", arguments->chunks,
                   "Numbers of micro-batches (default: the configured one, and 1, 2, 4, ... up to 64)")
      ->delimiter(',')
      ->type_name("N[,N...]")
      ->check(CLI::Range(1, 65'536));
  command
      ->add_option("--processes", arguments->processes,
                   "Processes of the run, each with replicas.local replicas on its own devices")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--prove", arguments->prove,
                    "Check the result: run the largest batch for two steps under the limit in a separate process, "
                    "then a larger one");
  command->add_option("--budget", arguments->budget_s, "Time limit of these runs in seconds")
      ->type_name("S")
      ->check(within(1, 1e6))
      ->capture_default_str();
  arguments->output.add_to(*command);
  command->callback([arguments] { run_memory(*arguments); });
}

}  // namespace sluice::app
