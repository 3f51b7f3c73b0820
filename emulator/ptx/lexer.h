// Turns PTX text into tokens with a line and a column (from 1). Tokens point into the text, which must outlive them.
// Never throws; an unreadable character becomes one kBad token. Not thread-safe; one lexer belongs to one parser.
#ifndef METE_EMULATOR_PTX_LEXER_H_
#define METE_EMULATOR_PTX_LEXER_H_

#include <cstdint>
#include <string_view>

namespace mete::emulator::ptx {

enum class TokenKind : uint8_t {
  kEnd,
  kIdentifier,   // add, %r1, $L__BB0_2
  kDirective,    // .reg, .u32, .shared::cta (with the dot)
  kInteger,      // value in `bits`
  kFloat,        // 1.0, 1e-3 or 0dXXXXXXXXXXXXXXXX: a double in `bits`
  kFloat32,      // 0fXXXXXXXX: a float in `bits`
  kString,       // without its quotes
  kPunctuation,  // one character, or << >>
  kBad,          // an unreadable character, number or comment
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  uint64_t bits = 0;
  int line = 1, column = 1;

  bool Is(std::string_view what) const {
    return (kind == TokenKind::kPunctuation || kind == TokenKind::kDirective || kind == TokenKind::kIdentifier) &&
           text == what;
  }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token Next();

 private:
  bool SkipSpace();  // false: a comment without an end
  Token Number(Token token);
  char At(size_t ahead = 0) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }
  void Step();

  std::string_view text_;
  size_t position_ = 0;
  int line_ = 1, column_ = 1;
};

}  // namespace mete::emulator::ptx

#endif  // METE_EMULATOR_PTX_LEXER_H_
