#include "interceptor/image.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mete::interceptor {
namespace {

constexpr uint64_t kOpaqueBytes = 64;  // a texture, sampler or surface reference, at most

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

// Words, numbers and single characters of PTX, without comments and strings.
class PtxReader {
 public:
  PtxReader(const char* text, size_t size) : at_(text), end_(text + size) {}

  struct Token {
    const char* text;
    size_t size;
    bool Is(const char* word) const { return strlen(word) == size && memcmp(text, word, size) == 0; }
    bool IsDirective() const { return size > 1 && *text == '.'; }
  };

  // False at the end.
  bool Next(Token* token) {
    SkipSpace();
    if (at_ == end_ || *at_ == '\0') return false;
    const char* from = at_++;
    if (*from == '"') {
      while (at_ != end_ && *at_ != '"' && *at_ != '\0') ++at_;
      if (at_ != end_ && *at_ == '"') ++at_;
    } else if (*from == '.' || IsWordCharacter(*from)) {
      // A qualified operation (ld.global.u32) is one word; a directive begins with its point.
      while (at_ != end_ && (IsWordCharacter(*at_) || (*from != '.' && *at_ == '.'))) ++at_;
    }
    *token = {from, static_cast<size_t>(at_ - from)};
    return true;
  }

 private:
  void SkipSpace() {
    for (;;) {
      while (at_ != end_ && (*at_ == ' ' || (*at_ >= '\t' && *at_ <= '\r'))) ++at_;
      if (end_ - at_ < 2 || at_[0] != '/') return;
      if (at_[1] == '/') {
        while (at_ != end_ && *at_ != '\n' && *at_ != '\0') ++at_;
      } else if (at_[1] == '*') {
        at_ += 2;
        while (end_ - at_ >= 2 && at_[0] != '\0' && (at_[0] != '*' || at_[1] != '/')) ++at_;
        at_ = end_ - at_ < 2 || at_[0] == '\0' ? end_ : at_ + 2;
      } else {
        return;
      }
    }
  }

  const char* at_;
  const char* const end_;
};

uint64_t TypeBytes(const PtxReader::Token& type) {
  if (type.Is(".texref") || type.Is(".samplerref") || type.Is(".surfref")) return kOpaqueBytes;
  uint64_t bits = 0, last = 0;
  for (size_t i = 1; i < type.size; ++i) {  // .f16x2, .bf16, .b128: the number, twice if packed
    const char c = type.text[i];
    if (c >= '0' && c <= '9' && bits < 1000) {
      last = last * 10 + static_cast<uint64_t>(c - '0');
      bits = last;
    } else if (c == 'x' && last != 0) {
      return bits / 8 * 2;
    } else {
      last = 0;
    }
  }
  return bits < 8 ? 1 : bits / 8;
}

bool ReadNumber(const PtxReader::Token& token, uint64_t* value) {
  size_t at = 0;
  unsigned base = 10;
  if (token.size > 1 && token.text[0] == '0') {
    const char kind = token.text[1];
    base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 8;
    at = base == 8 ? 1 : 2;
  }
  uint64_t number = 0;
  bool any = at == 1;
  for (; at < token.size && token.text[at] != 'U'; ++at) {
    const char c = token.text[at];
    const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                           : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                           : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
                                                  : 99;
    if (digit >= base) return false;
    if (__builtin_mul_overflow(number, uint64_t{base}, &number) || __builtin_add_overflow(number, digit, &number)) {
      number = UINT64_MAX;
    }
    any = true;
  }
  *value = number;
  return any || token.size == 1;
}

// Past `.global` or `.const`, up to the semicolon. False: not understood.
bool AddVariables(PtxReader& reader, Extent* extent) {
  PtxReader::Token token;
  uint64_t element = 0, vector = 1, count = 1, listed = 0;
  bool named = false, open_bound = false, in_bound = false, bound_given = false, assigned = false;
  int depth = 0;  // of braces and parentheses
  while (reader.Next(&token)) {
    const char c = token.size == 1 ? *token.text : '\0';
    if (c == '(' || c == '{') {
      ++depth;
    } else if (c == ')' || c == '}') {
      --depth;
    } else if (depth > 0 && assigned) {
      if (c == ',') ++listed;
    } else if (depth > 0) {
      continue;  // of .attribute(…)
    } else if (c == ';' || c == ',') {
      if (!named || element == 0) return false;
      if (open_bound) count = Times(count, listed + 1);
      extent->Add(Times(Times(element, vector), count));
      if (c == ';') return true;
      count = 1, listed = 0, named = open_bound = assigned = false;
    } else if (c == '[') {
      in_bound = true, bound_given = false;
    } else if (c == ']') {
      open_bound = open_bound || !bound_given;
      in_bound = false;
    } else if (in_bound) {
      uint64_t bound;
      if (!ReadNumber(token, &bound)) return false;
      count = Times(count, bound);
      bound_given = true;
    } else if (c == '=') {
      assigned = true;
    } else if (assigned) {
      continue;
    } else if (token.Is(".align")) {
      if (!reader.Next(&token)) return false;
    } else if (token.Is(".v2") || token.Is(".v4") || token.Is(".v8")) {
      vector = static_cast<uint64_t>(token.text[2] - '0');
    } else if (token.Is(".attribute") || token.Is(".unified") || token.Is(".managed")) {
      continue;
    } else if (token.IsDirective()) {
      element = TypeBytes(token);
    } else if (IsWordCharacter(*token.text)) {
      named = true;
    }
  }
  return false;
}

// A file, or what there is of it, in memory while it is looked at.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      void* at = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      bytes_ = at == MAP_FAILED ? nullptr : at;
    }
    if (fd >= 0) close(fd);
  }
  ~MappedFile() {
    if (bytes_ != nullptr) munmap(bytes_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const void* bytes() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  void* bytes_ = nullptr;
  size_t size_ = 0;
};

bool IsElf(const void* image) { return memcmp(image, ELFMAG, SELFMAG) == 0; }

bool IsText(const char* text, size_t size) {
  for (size_t i = 0; i < 4 && i < size && text[i] != '\0'; ++i) {
    const char c = text[i];
    if (c < ' ' && c != '\n' && c != '\r' && c != '\t') return false;
  }
  return true;
}

}  // namespace

ImageSize SizeOfPtx(const char* text, size_t size) {
  ImageSize result{true, {}};
  PtxReader reader(text, size);
  PtxReader::Token token, before{"", 0};
  while (reader.Next(&token)) {
    const bool declares = (token.Is(".global") || token.Is(".const")) && !before.Is(".ptr");
    if (declares) {
      Extent extent;
      if (!AddVariables(reader, &extent)) return {};
      if (!before.Is(".extern")) result.extent.Add(extent);
      before = {"", 0};
    } else {
      before = token;
    }
  }
  return result;
}

ImageSize SizeOfElf(const void* image, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header) return {};
  memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 ||
      header.e_shoff > size || (size - header.e_shoff) / sizeof(Elf64_Shdr) < header.e_shnum) {
    return {};
  }
  ImageSize result{true, {}};
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    memcpy(&section, static_cast<const char*>(image) + header.e_shoff + i * sizeof section, sizeof section);
    if ((section.sh_flags & SHF_ALLOC) != 0) result.extent.Add(section.sh_size);
  }
  return result;
}

ImageSize SizeOfImage(const void* image) {
  if (image == nullptr) return {};
  const auto* text = static_cast<const char*>(image);
  for (size_t i = 0; i < SELFMAG; ++i) {
    if (text[i] == '\0') return IsText(text, i) ? ImageSize{true, {}} : ImageSize{};
  }
  if (IsElf(image)) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    // The file's own word for its length, which the driver relies on as well.
    return SizeOfElf(image, header.e_shoff + uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  }
  return IsText(text, 4) ? SizeOfPtx(text, strlen(text)) : ImageSize{};
}

ImageSize SizeOfFile(const char* path) {
  if (path == nullptr) return {};
  const MappedFile file(path);
  if (file.bytes() == nullptr || file.size() < SELFMAG) return {};
  if (IsElf(file.bytes())) return SizeOfElf(file.bytes(), file.size());
  const auto* text = static_cast<const char*>(file.bytes());
  return IsText(text, file.size()) ? SizeOfPtx(text, file.size()) : ImageSize{};
}

}  // namespace mete::interceptor
