#include "app/help.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/concat.h"
#include "core/text.h"

namespace sluice::app {
namespace {

const std::map<std::string_view, std::vector<std::string_view>>& examples() {
  static const std::map<std::string_view, std::vector<std::string_view>> all{
      {"", {"sluice train configs/quickstart.toml", "sluice report runs/*"}},
      {"train",
       {"sluice train configs/quickstart.toml --set train.lr=0.1 --run-dir runs/a",
        "sluice train configs/pipe_ddp.toml --rank 0 --world-size 2 --init tcp://node0:29500 --resume auto"}},
      {"serve", {"sluice serve configs/parameter_server.toml --set ps.placement=servers --run-dir runs/served"}},
      {"eval",
       {"sluice eval --checkpoint runs/a", "sluice eval configs/quickstart.toml --weights model.safetensors --json"}},
      {"merge", {"sluice merge runs/a --out merged"}},
      {"digest", {"sluice digest runs/a", "sluice digest runs/a/checkpoints/step-100 --json"}},
      {"compare", {"sluice compare runs/a runs/b"}},
      {"step", {"sluice step configs/quickstart.toml --out step.safetensors"}},
      {"tokenize",
       {"sluice tokenize train.jsonl valid.jsonl --tokenizer tokenizer.json --out data",
        "sluice tokenize --tokenizer tokenizer.json --json < texts.txt"}},
      {"profile", {"sluice profile configs/quickstart.toml --out profile.json --layers"}},
      {"tune",
       {"sluice tune configs/quickstart.toml --budget 60 --out tuned.toml",
        "sluice tune configs/quickstart.toml --profile profile.json --keep pipeline.stages"}},
      {"config",
       {"sluice config configs/quickstart.toml --set model.name=vit", "sluice config --markdown > configuration.md"}},
      {"report", {"sluice report runs/a runs/b", "sluice report runs/a --html report.html --watch"}},
      {"schedule",
       {"sluice schedule 1f1b --stages 4 --chunks 8 --svg schedule.svg",
        "sluice schedule interleaved --stages 4 --chunks 8 --virtual 2 --forward 1 --backward 2"}},
      {"batch-plan",
       {"sluice batch-plan --workers 5 --small 2 --base-batch 1000 --samples 50000 --extra-time 1.05 --a 0.00022595 "
        "--b 0.0062"}},
      {"simulate",
       {"sluice simulate configs/quickstart.toml --profile profile.json --nodes 4 --devices 8",
        "sluice simulate --sync amb --workers 4 --base-batch 64 --seconds-per-example 0.001 --amb-time-limit 0.05"}},
      {"memory", {"sluice memory configs/quickstart.toml --profile profile.json --limit 16GiB"}},
      {"replay", {"sluice replay runs/a --scale stage:1=0.8 --bandwidth 10Gbit/s"}},
      {"make-keys", {"sluice make-keys keys"}},
      {"models", {"sluice models --json"}},
      {"datasets", {"sluice datasets"}},
      {"devices", {"sluice devices"}},
      {"version", {"sluice version --json"}}};
  return all;
}

// Replaces CLI11's type names, which describe storage types.
std::string_view plain_name(std::string_view type, bool is_positional) {
  if (type == "INT" || type == "UINT") return "N";
  if (type == "FLOAT") return "NUMBER";
  return type == "TEXT" && is_positional ? "" : type;
}

std::string number_words(const std::string& number) {
  constexpr double kWhole = 1e15;
  const double value = std::strtod(number.c_str(), nullptr);
  return value < kWhole && value == static_cast<double>(static_cast<std::int64_t>(value)) ? fixed(value, 0) : number;
}

// Converts "INT in [1 - 1024]" to "1 to 1024"; returns other text unchanged.
std::string range_words(const std::string& check) {
  const auto open = check.find("in ["), dash = check.find(" - ");
  if (open == std::string::npos || dash == std::string::npos || check.back() != ']') return check;
  const std::string least = check.substr(open + 4, dash - open - 4);
  const std::string most = check.substr(dash + 3, check.size() - dash - 4);
  constexpr double kNoLimit = 1e9;
  if (std::strtod(most.c_str(), nullptr) >= kNoLimit) return concat(number_words(least), " or more");
  return concat(number_words(least), " to ", number_words(most));
}

// Splits a description into the type and the checks. A type name may contain a colon: "LEAST:MOST".
std::vector<std::string> type_and_checks(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool is_check = part.find("in [") != std::string::npos || part.starts_with("{");
    if (parts.empty() || is_check) {
      parts.push_back(part);
    } else {
      parts.back() += ":" + part;
    }
    begin = end + 1;
  }
  return parts;
}

constexpr std::size_t kWidth = 100;         // columns of a line
constexpr std::size_t kDescriptionAt = 30;  // column of a description, CLI11's own

// `joint` ends all lines but the last one.
std::string wrapped(std::string_view text, std::size_t width, std::string_view separator = " ",
                    std::string_view joint = "\n") {
  std::string lines;
  while (text.size() > width) {
    const std::size_t end = text.rfind(separator, width);
    if (end == std::string_view::npos || end == 0) break;
    lines += concat(text.substr(0, end), joint);
    text.remove_prefix(end + 1);
  }
  return lines += text;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return concat(wrapped(app->get_description(), kWidth), "\n");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kWidth - kDescriptionAt);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream text;
    CLI::detail::format_help(text, command->get_name(), wrapped(command->get_description(), kWidth - kDescriptionAt),
                             kDescriptionAt);
    return text.str();
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string words = value_words(*option, option->get_positional());
    std::string text = words.empty() ? "" : concat(" ", words);
    for (const CLI::Option* other : option->get_needs()) text += concat(" (with ", other->get_name(), ")");
    for (const CLI::Option* other : option->get_excludes()) text += concat(" (not with ", other->get_name(), ")");
    return text;
  }
};

std::string example_text(std::string_view command) {
  const auto found = examples().find(command);
  if (found == examples().end()) return "";
  std::string text = found->second.size() > 1 ? "Examples:" : "Example:";
  for (const std::string_view line : found->second)
    text += concat("\n  ", wrapped(line, kWidth - 4, " --", " \\\n    "));
  return text;
}

void settle(CLI::App& app, const std::shared_ptr<CLI::FormatterBase>& formatter) {
  app.formatter(formatter);
  for (CLI::App* inner : app.get_subcommands([](const CLI::App*) { return true; })) settle(*inner, formatter);
}

}  // namespace

std::string value_words(const CLI::Option& option, bool is_positional) {
  if (option.get_type_size() == 0) return "";
  std::vector<std::string> parts = type_and_checks(option.get_type_name());
  std::string name(plain_name(parts.front(), is_positional));
  std::vector<std::string> notes;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool is_list_of_words = parts[i].starts_with("{");
    if (is_list_of_words) {
      name = parts[i];
    } else if (std::string range = range_words(parts[i]); !range.empty()) {
      notes.push_back(std::move(range));
    }
  }
  if (!option.get_default_str().empty()) notes.push_back(concat("default ", option.get_default_str()));
  if (option.get_required()) notes.emplace_back("required");
  const bool is_list = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  if (is_list && !name.ends_with("...]")) name += name.empty() ? "..." : " ...";
  if (notes.empty()) return name;
  return concat(name, name.empty() ? "(" : " (", join(notes, "; "), ")");
}

void settle_help(CLI::App& app) {
  settle(app, std::make_shared<HelpFormatter>());
  app.footer(example_text(""));
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    command->footer(example_text(command->get_name()));
}

}  // namespace sluice::app
