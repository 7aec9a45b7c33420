// squad_file: reads questions from SQuAD's JSON, versions 1.1 and 2.0. No LibTorch. Errors: DataError, which names the
// file and the question.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::data {

struct Question {
  std::string id, text;
  std::size_t context = 0;           // in SquadFile::contexts
  std::vector<std::string> answers;  // empty: the context has none
  // Characters of the first answer in the context; -1: it differs from the context in white space.
  std::int64_t begin = -1, end = -1;
};

struct SquadFile {
  std::vector<std::string> contexts;
  std::vector<Question> questions;
  bool has_impossible = false;         // version 2.0: a question may have no answer
  std::int64_t misplaced_answers = 0;  // that differ in white space
};

[[nodiscard]] SquadFile read_squad(const std::filesystem::path& file);
[[nodiscard]] SquadFile parse_squad(std::string_view content, const std::string& name);

}  // namespace sluice::data
