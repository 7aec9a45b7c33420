#include "text/sentencepiece.h"

#include <cmath>
#include <cstring>
#include <protozero/pbf_reader.hpp>

#include "core/error.h"
#include "core/text.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

using Reader = protozero::pbf_reader;
using Wire = protozero::pbf_wire_type;

void require_wire(const Reader& reader, Wire type) {
  if (!reader.has_wire_type(type)) throw protozero::unknown_pbf_wire_type_exception();
}
std::string_view read_bytes(Reader& reader) {
  require_wire(reader, Wire::length_delimited);
  const auto view = reader.get_view();
  return {view.data(), view.size()};
}
std::int64_t read_number(Reader& reader) {
  require_wire(reader, Wire::varint);
  return reader.get_int64();
}

// Field numbers are those of sentencepiece_model.proto.
SentencePieceFile::Piece parse_piece(std::string_view bytes) {
  SentencePieceFile::Piece piece;
  Reader reader(bytes.data(), bytes.size());
  while (reader.next()) {
    switch (reader.tag()) {
      case 1: piece.text = read_bytes(reader); break;
      case 2:
        require_wire(reader, Wire::fixed32);
        piece.score = reader.get_float();
        break;
      case 3: piece.type = static_cast<PieceType>(read_number(reader)); break;
      default: reader.skip();
    }
  }
  return piece;
}

void read_trainer(std::string_view bytes, SentencePieceFile& file) {
  Reader reader(bytes.data(), bytes.size());
  while (reader.next()) {
    switch (reader.tag()) {
      case 3: file.model_type = static_cast<int>(read_number(reader)); break;
      case 24: file.has_space_suffix = read_number(reader) != 0; break;
      case 35: file.has_byte_fallback = read_number(reader) != 0; break;
      case 44: file.unknown_surface = read_bytes(reader); break;
      default: reader.skip();
    }
  }
}

void read_normalizer(std::string_view bytes, SentencePieceFile& file) {
  Reader reader(bytes.data(), bytes.size());
  while (reader.next()) {
    switch (reader.tag()) {
      case 2: file.charsmap = read_bytes(reader); break;
      case 3: file.adds_prefix = read_number(reader) != 0; break;
      case 4: file.removes_extra_spaces = read_number(reader) != 0; break;
      case 5: file.escapes_spaces = read_number(reader) != 0; break;
      default: reader.skip();
    }
  }
}

void check_piece(const SentencePieceFile::Piece& piece, std::string& repaired, const std::string& where) {
  const auto& [text, score, type] = piece;
  const bool has_type = type >= PieceType::kNormal && type <= PieceType::kByte;
  if (text.empty() || !has_type || !std::isfinite(score) || repair_utf8(text, repaired) != text) {
    throw DataError(where, ": the piece \"", printable(text), "\" is damaged");
  }
  const auto byte = byte_of_token(text);
  const bool is_byte = type == PieceType::kByte;
  if (byte.has_value() != is_byte || (is_byte && text != byte_token(*byte))) {
    throw DataError(where, ": the piece \"", printable(text), "\" ",
                    is_byte ? "is of type byte, but names none" : "names a byte, but is of another type");
  }
}

void check_pieces(const SentencePieceFile& file, const std::string& where) {
  if (file.pieces.empty()) throw DataError(where, ": is not a SentencePiece model: it has no pieces");
  int unknown = 0;
  std::int64_t bytes = 0;
  std::string repaired;
  for (const auto& piece : file.pieces) {
    check_piece(piece, repaired, where);
    unknown += piece.type == PieceType::kUnknown ? 1 : 0;
    bytes += piece.type == PieceType::kByte ? 1 : 0;
  }
  if (unknown != 1) throw DataError(where, ": has ", unknown, " unknown pieces, expected one");
  const int expected = file.has_byte_fallback ? 256 : 0;
  if (bytes != expected) {
    throw DataError(where, ": has ", bytes, " byte pieces, expected ", expected,
                    file.has_byte_fallback ? " with" : " without", " byte_fallback");
  }
  if (byte_of_token(file.unknown_surface))
    throw DataError(where, ": the surface of its unknown piece is the name of a byte");
}

}  // namespace

SentencePieceFile parse_sentencepiece_file(std::string_view content, const std::string& where) {
  SentencePieceFile file;
  SentencePieceFile denormalizer;
  try {
    Reader reader(content.data(), content.size());
    while (reader.next()) {
      switch (reader.tag()) {
        case 1: file.pieces.push_back(parse_piece(read_bytes(reader))); break;
        case 2: read_trainer(read_bytes(reader), file); break;
        case 3: read_normalizer(read_bytes(reader), file); break;
        case 5: read_normalizer(read_bytes(reader), denormalizer); break;
        default: reader.skip();
      }
    }
  } catch (const protozero::exception& error) {
    throw DataError(where, ": is not a whole SentencePiece model: ", error.what());
  }
  check_pieces(file, where);
  if (!denormalizer.charsmap.empty())
    throw ConfigError(where, ": rules to denormalize (denormalizer_spec) are not supported");
  constexpr std::array<std::string_view, 5> kTypes = {"", "unigram", "bpe", "word", "char"};
  const bool is_known = file.model_type > 0 && file.model_type < 5;
  if (file.model_type != 1 && file.model_type != 2) {
    throw ConfigError(where, ": the model type \"", is_known ? kTypes[static_cast<std::size_t>(file.model_type)] : "?",
                      "\" is not supported, only unigram and bpe");
  }
  return file;
}

PrefixMatcher::PrefixMatcher(const SentencePieceFile& file) {
  for (const auto& piece : file.pieces) {
    if (piece.type != PieceType::kUserDefined) continue;
    pieces_.add(piece.text, 0);
    begins_[static_cast<unsigned char>(piece.text.front())] = true;
  }
}

std::size_t PrefixMatcher::match(std::string_view text) const {
  if (text.empty() || !begins_[static_cast<unsigned char>(text.front())]) return 0;
  for (std::size_t size = std::min(text.size(), pieces_.longest()); size > 0; --size) {
    if (pieces_.find(text.substr(0, size)) != kNoToken) return size;
  }
  return 0;
}

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceFile& file, const std::string& where)
    : matcher_(file),
      adds_prefix_(file.adds_prefix),
      removes_extra_spaces_(file.removes_extra_spaces),
      escapes_spaces_(file.escapes_spaces),
      has_space_suffix_(file.has_space_suffix) {
  if (file.charsmap.empty()) return;
  std::uint32_t trie_bytes = 0;
  const auto reject = [&] { throw DataError(where, ": the rules of its normalizer are damaged"); };
  if (file.charsmap.size() < sizeof trie_bytes) reject();
  std::memcpy(&trie_bytes, file.charsmap.data(), sizeof trie_bytes);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes >= file.charsmap.size() - sizeof trie_bytes) reject();
  trie_.resize(trie_bytes / 4);
  std::memcpy(trie_.data(), file.charsmap.data() + sizeof trie_bytes, trie_bytes);
  normal_ = file.charsmap.substr(sizeof trie_bytes + trie_bytes);
  std::string repaired;
  if (normal_.back() != '\0' || repair_utf8(normal_, repaired).data() == repaired.data()) reject();
}

// Follows a byte from a node. Units as in darts-clone's file format: label (bits 0-7, 31), leaf (8), offset (9-30).
bool SentencePieceNormalizer::next_unit(std::size_t& node, unsigned char byte, std::uint32_t& unit) const {
  node ^= byte;
  if (node >= trie_.size()) return false;
  unit = trie_[node];
  if ((unit & (1U << 31 | 0xffU)) != byte) return false;
  node ^= static_cast<std::size_t>(unit >> 10) << ((unit & 1U << 9) >> 6);
  return node < trie_.size();
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::normalize_prefix(std::string_view text) const {
  if (const std::size_t bytes = matcher_.match(text)) return {text.substr(0, bytes), bytes};
  std::size_t longest = 0;
  std::uint32_t value = 0;
  if (!trie_.empty()) {
    std::size_t node = static_cast<std::size_t>(trie_[0] >> 10) << ((trie_[0] & 1U << 9) >> 6);
    std::uint32_t unit = 0;
    for (std::size_t i = 0; i < text.size() && next_unit(node, static_cast<unsigned char>(text[i]), unit); ++i) {
      if ((unit >> 8 & 1U) == 0) continue;
      longest = i + 1;
      value = trie_[node] & ~(1U << 31);
    }
  }
  if (longest == 0) {
    longest = character_bytes(text);
    return {text.substr(0, longest), longest};
  }
  if (value >= normal_.size() || !begins_character(normal_[value]) ||
      (longest < text.size() && !begins_character(text[longest]))) {
    throw DataError("the rules of the tokenizer's normalizer are damaged; get the .model file again");
  }
  return {std::string_view(normal_.c_str() + value), longest};
}

void SentencePieceNormalizer::append(std::string_view normal, CharRange from, AlignedText& out) const {
  for (const char byte : normal) byte == ' ' ? append_space(from, out) : out.append_byte(byte, from);
}

void SentencePieceNormalizer::append_space(CharRange from, AlignedText& out) const {
  out.append(escapes_spaces_ ? kSpaceSymbol : " ", from);
}

std::size_t SentencePieceNormalizer::leading_spaces(std::string_view text) const {
  std::size_t bytes = 0;
  while (removes_extra_spaces_ && bytes < text.size()) {
    const Prefix prefix = normalize_prefix(text.substr(bytes));
    if (prefix.normal != " ") break;
    bytes += prefix.bytes;
  }
  return bytes;
}

// Removes spaces at the end. Returns where the origin of the last byte ends.
std::uint32_t SentencePieceNormalizer::trim(std::uint32_t end, AlignedText& out) const {
  const std::string_view space = escapes_spaces_ ? kSpaceSymbol : " ";
  std::size_t kept = out.size();
  while (removes_extra_spaces_ && std::string_view(out.bytes).substr(0, kept).ends_with(space)) kept -= space.size();
  if (kept == out.size()) return end;
  end = out.origin[kept].begin;
  out.resize(kept);
  return end;
}

// In the order of steps of sentencepiece (Apache 2.0).
void SentencePieceNormalizer::run(const AlignedText& in, AlignedText& out) const {
  const std::string_view text = in.bytes;
  std::size_t at = leading_spaces(text);
  if (at == text.size()) return;
  if (adds_prefix_ && !has_space_suffix_) append_space(in.origin[at], out);
  for (bool is_after_space = removes_extra_spaces_; at < text.size(); is_after_space &= removes_extra_spaces_) {
    Prefix prefix = normalize_prefix(text.substr(at));
    while (is_after_space && prefix.normal.starts_with(' ')) prefix.normal.remove_prefix(1);
    append(prefix.normal, in.origin[at], out);
    if (!prefix.normal.empty()) is_after_space = prefix.normal.ends_with(' ');
    at += prefix.bytes;
  }
  std::uint32_t end = trim(in.origin.back().end, out);
  if (adds_prefix_ && has_space_suffix_) append_space({end, end}, out);
  for (std::size_t i = out.size(); i-- > 0; end = out.origin[i].begin) out.origin[i].end = end;
}

TokenizerParts parse_sentencepiece(std::string_view content, const std::string& where) {
  const SentencePieceFile file = parse_sentencepiece_file(content, where);
  TokenizerParts parts;
  parts.normalizer = Normalizer({SentencePieceStep{std::make_shared<const SentencePieceNormalizer>(file, where)}});
  parts.model = make_sentencepiece_model(file, where);
  SentencePieceDecode decode{.unknown_surface = file.unknown_surface,
                             .removes_prefix = file.adds_prefix || file.removes_extra_spaces,
                             .removes_all_leading = file.removes_extra_spaces};
  std::vector<AddedToken> control;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const auto& piece = file.pieces[id];
    if (piece.type == PieceType::kUnknown) decode.unknown = piece.text;
    if (piece.type != PieceType::kControl) continue;
    control.push_back({.id = static_cast<TokenId>(id),
                       .content = piece.text,
                       .is_in_text = false,
                       .is_normalized = false,
                       .is_special = true});
  }
  parts.added_tokens = AddedTokens(std::move(control), parts.model->vocabulary(), parts.normalizer, where);
  parts.decoder.emplace_back(std::move(decode));
  return parts;
}

}  // namespace sluice::text
