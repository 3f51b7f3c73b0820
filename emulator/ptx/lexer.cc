#include "emulator/ptx/lexer.h"

#include <charconv>
#include <cstring>

namespace mete::emulator::ptx {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool StartsName(char c) { return IsLetter(c) || c == '_' || c == '$' || c == '%'; }
bool InName(char c) { return IsLetter(c) || IsDigit(c) || c == '_' || c == '$'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// False: a digit outside the base, no digit at all, or more than 64 bits.
bool ParseInteger(std::string_view digits, int base, uint64_t* value) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *value, base);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

void Lexer::Step() {
  if (At() == '\n') {
    ++line_;
    column_ = 1;
  } else {
    ++column_;
  }
  ++position_;
}

bool Lexer::SkipSpace() {
  for (;;) {
    const char c = At();
    if (position_ >= text_.size()) return true;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v') {
      Step();
    } else if (c == '\0') {
      Step();  // drivers are handed text with its terminating zero
    } else if (c == '/' && At(1) == '/') {
      while (position_ < text_.size() && At() != '\n') Step();
    } else if (c == '/' && At(1) == '*') {
      Step();
      Step();
      while (!(At() == '*' && At(1) == '/')) {
        if (position_ >= text_.size()) return false;
        Step();
      }
      Step();
      Step();
    } else {
      return true;
    }
  }
}

Token Lexer::Number(Token token) {
  const size_t begin = position_;
  const auto bad = [&] {
    while (InName(At()) || At() == '.') Step();
    token.kind = TokenKind::kBad;
    token.text = text_.substr(begin, position_ - begin);
    return token;
  };
  const auto done = [&](TokenKind kind) {
    if (InName(At())) return bad();
    token.kind = kind;
    token.text = text_.substr(begin, position_ - begin);
    return token;
  };
  if (At() == '0' && (At(1) == 'f' || At(1) == 'F' || At(1) == 'd' || At(1) == 'D')) {
    const bool is_double = At(1) == 'd' || At(1) == 'D';
    const int digits = is_double ? 16 : 8;
    for (int i = 0; i < digits; ++i) {
      const int digit = HexDigit(At(2 + static_cast<size_t>(i)));
      if (digit < 0) return bad();
      token.bits = token.bits << 4 | static_cast<uint64_t>(digit);
    }
    for (int i = 0; i < digits + 2; ++i) Step();
    return done(is_double ? TokenKind::kFloat : TokenKind::kFloat32);
  }
  int base = 10;
  size_t prefix = 0;
  if (At() == '0' && (At(1) == 'x' || At(1) == 'X'))
    base = 16, prefix = 2;
  else if (At() == '0' && (At(1) == 'b' || At(1) == 'B'))
    base = 2, prefix = 2;
  size_t length = prefix;
  while (base == 16 ? HexDigit(At(length)) >= 0 : IsDigit(At(length))) ++length;
  const bool fraction = base == 10 && At(length) == '.' && !StartsName(At(length + 1));
  const bool exponent = base == 10 && (At(length) == 'e' || At(length) == 'E');
  if (fraction || exponent) {
    double value = 0;
    const char* first = text_.data() + begin;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
    if (error != std::errc() || end == first) return bad();
    for (const char* p = first; p != end; ++p) Step();
    std::memcpy(&token.bits, &value, sizeof value);
    return done(TokenKind::kFloat);
  }
  std::string_view digits = text_.substr(begin + prefix, length - prefix);
  if (base == 10 && digits.size() > 1 && digits[0] == '0') base = 8;
  if (!ParseInteger(digits, base, &token.bits)) return bad();
  for (size_t i = 0; i < length; ++i) Step();
  if (At() == 'U') Step();
  return done(TokenKind::kInteger);
}

Token Lexer::Next() {
  Token token;
  const bool closed = SkipSpace();
  token.line = line_;
  token.column = column_;
  if (!closed) {
    token.kind = TokenKind::kBad;
    token.text = "comment without an end";
    return token;
  }
  if (position_ >= text_.size()) return token;
  const size_t begin = position_;
  const char c = At();
  if (StartsName(c)) {
    Step();
    while (InName(At())) Step();
    token.kind = TokenKind::kIdentifier;
  } else if (c == '.' && (InName(At(1)))) {
    Step();
    while (InName(At()) || (At() == ':' && At(1) == ':' && InName(At(2)))) {
      if (At() == ':') Step();
      Step();
    }
    token.kind = TokenKind::kDirective;
  } else if (IsDigit(c)) {
    return Number(token);
  } else if (c == '"') {
    Step();
    while (position_ < text_.size() && At() != '"' && At() != '\n') Step();
    if (At() != '"') {
      token.kind = TokenKind::kBad;
      token.text = "string without an end";
      return token;
    }
    token.kind = TokenKind::kString;
    token.text = text_.substr(begin + 1, position_ - begin - 1);
    Step();
    return token;
  } else {
    Step();
    if ((c == '<' || c == '>') && At() == c) Step();
    token.kind = std::strchr("{}()[],;:+-*/%<>@!=|&^~", c) != nullptr ? TokenKind::kPunctuation : TokenKind::kBad;
  }
  token.text = text_.substr(begin, position_ - begin);
  return token;
}

}  // namespace mete::emulator::ptx
