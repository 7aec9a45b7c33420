#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/options.h"
#include "app/process.h"
#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/log.h"
#include "core/progress_line.h"
#include "core/text.h"
#include "core/text_table.h"
#include "device/cpu_threads.h"
#include "text/tokenize_files.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct TokenizeArguments {
  std::vector<std::string> files;
  std::string tokenizer, out;
  std::string documents = "file";
  text::TokenizeOptions options;
  OutputArguments output;
  int threads = 0;
  bool pair = false;
};

std::string json_line(const text::Encoding& encoding) {
  ordered_json offsets = ordered_json::array();
  for (const text::CharRange& range : encoding.offsets) offsets.push_back({range.begin, range.end});
  return ordered_json{{"ids", encoding.ids}, {"offsets", offsets}}.dump() + "\n";
}

// Prints the tokens of each line of standard input as soon as the line has come.
class LineTokenizer {
 public:
  LineTokenizer(const std::string& tokenizer, bool is_pair)
      : tokenizer_(text::open_tokenizer(tokenizer)), is_pair_(is_pair) {}

  void run() {
    std::string rest;
    std::string block(std::size_t{1} << 16, '\0');
    while (true) {
      const auto count = uninterrupted([&] { return ::read(STDIN_FILENO, block.data(), block.size()); });
      if (count < 0) throw DataError("standard input cannot be read; redirect a file of text to it");
      if (count == 0) break;
      rest.append(block, 0, static_cast<std::size_t>(count));
      if (rest.size() > text::kMostRecordBytes + block.size()) {
        throw DataError("standard input: line ", lines_ + 1, " has more than ", human_bytes(text::kMostRecordBytes),
                        "; split it");
      }
      std::size_t begin = 0;
      std::string answers;
      for (std::size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
        answers += answer_of(std::string_view(rest).substr(begin, end - begin));
      }
      rest.erase(0, begin);
      if (!answers.empty()) print_out(answers);
    }
    if (!rest.empty()) print_out(answer_of(rest));
  }

 private:
  std::string answer_of(std::string_view line) {
    ++lines_;
    if (!is_pair_) return json_line(tokenizer_->encode(line));
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos || line.find('\t', tab + 1) != std::string_view::npos) {
      throw DataError("standard input: line ", lines_,
                      " is not two texts with a tab between them; correct it, or leave out --pair");
    }
    return json_line(tokenizer_->encode(line.substr(0, tab), line.substr(tab + 1)));
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool is_pair_;
  std::uint64_t lines_ = 0;
};

void warn(const text::TokenizedFile& file) {
  const auto documents = [](std::uint64_t count) { return counted(static_cast<std::int64_t>(count), "document"); };
  if (file.repaired > 0) {
    log_warning(file.file.string(), ": ", documents(file.repaired),
                " had invalid UTF-8, read as U+FFFD; check the encoding of the text");
  }
}

void print_results(const std::vector<text::TokenizedFile>& files, double seconds, const OutputArguments& output) {
  ordered_json json = ordered_json::array();
  std::vector<TextRow> rows{{"file", "tokens", "documents", ""}};
  for (const text::TokenizedFile& file : files) {
    warn(file);
    json.push_back({{"file", file.file.string()},
                    {"tokens", file.tokens},
                    {"documents", file.documents},
                    {"was_finished", file.was_finished}});
    rows.push_back({file.file.string(), std::to_string(file.tokens), std::to_string(file.documents),
                    file.was_finished ? "was finished" : ""});
  }
  output.print({{"files", json}, {"seconds", seconds}},
               text_table(rows, std::array{Align::kLeft, Align::kRight, Align::kRight, Align::kLeft}));
}

void run_tokenize(TokenizeArguments& arguments) {
  if (arguments.files.empty()) {
    if (!arguments.output.json || !arguments.out.empty()) {
      throw ConfigError(
          "`sluice tokenize` needs FILES and --out, or --json for the lines of standard input; see `sluice tokenize "
          "--help`");
    }
    turn_broken_pipes_into_errors();
    return LineTokenizer(arguments.tokenizer, arguments.pair).run();
  }
  if (arguments.out.empty()) throw ConfigError("`sluice tokenize` needs --out DIR, the folder of the token files");
  if (arguments.pair)
    throw ConfigError("--pair is for the lines of standard input; leave out FILES and --out, or --pair");
  turn_broken_pipes_into_errors();
  arguments.options.rule = text::document_rule(arguments.documents);
  arguments.options.tokenizer = arguments.tokenizer;
  arguments.options.folder = arguments.out;
  arguments.options.threads = arguments.threads > 0 ? arguments.threads : device::available_cores();
  const Nanoseconds begin = now_ns();
  std::uint64_t first_bytes = 0;
  ProgressLine line;
  const auto files = text::tokenize_files(
      {arguments.files.begin(), arguments.files.end()}, arguments.options, [&](const text::TokenizeProgress& at) {
        if (first_bytes == 0) first_bytes = at.bytes;
        line.show([&] {
          const double seconds = static_cast<double>(now_ns() - begin) / 1e9;
          const double speed = static_cast<double>(at.bytes - first_bytes) / seconds;
          const double left = speed > 0 ? static_cast<double>(at.all_bytes - at.bytes) / speed : 0;
          return concat("tokenizing ", at.file.string(), ": ",
                        percent(static_cast<double>(at.bytes) / static_cast<double>(at.all_bytes)), " of ",
                        human_bytes(at.all_bytes), ", ", human_bytes(static_cast<std::uint64_t>(speed)), "/s, ",
                        human_duration(left), " left");
        });
      });
  print_results(files, static_cast<double>(now_ns() - begin) / 1e9, arguments.output);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Make token files of text files; or with --json, print the tokens of each line of standard input");
  const auto arguments = std::make_shared<TokenizeArguments>();
  command
      ->add_option(
          "FILES", arguments->files,
          "Text files, JSON lines (.jsonl, .ndjson), or tables with a row of names (.csv, .tsv); each FILE becomes "
          "DIR/FILE.tokens without its ending. A command that was interrupted goes on if it is run again")
      ->check(not_empty);
  command
      ->add_option("--tokenizer", arguments->tokenizer, "tokenizer.json, BERT's vocab.txt, or a SentencePiece .model")
      ->type_name("FILE")
      ->required()
      ->check(not_empty);
  command->add_option("--out", arguments->out, "Folder for the token files")->type_name("DIR")->check(not_empty);
  command
      ->add_option("--documents", arguments->documents,
                   "Documents of a plain text: the file, each line that is not blank, or what blank lines separate")
      ->check(CLI::IsMember({"file", "line", "blank"}))
      ->capture_default_str();
  command->add_option("--column", arguments->options.column, "Column of a table or JSON line that holds the text")
      ->type_name("NAME")
      ->check(not_empty)
      ->capture_default_str();
  command
      ->add_option("--end-token", arguments->options.end_token,
                   "Token after each document; auto: the tokenizer's end-of-text token if it has one; none")
      ->type_name("TOKEN|auto|none")
      ->check(not_empty)
      ->capture_default_str();
  command->add_flag("--special-tokens", arguments->options.adds_special_tokens,
                    "Also add the tokens that the tokenizer puts around a text, such as [CLS] and [SEP]");
  command->add_option("--threads", arguments->threads, "Threads (default: all cores)")->check(CLI::Range(1, 1024));
  command->add_flag("--pair", arguments->pair, "Lines of standard input are two texts with a tab between them");
  arguments->output.add_to(*command);
  command->callback([arguments] { run_tokenize(*arguments); });
}

}  // namespace sluice::app
