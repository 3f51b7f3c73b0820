// The string functions that libmete-preload.so uses, its own: the C library's names may lead to somebody who stands in
// front of them and is not ready yet. A sanitizer's runtime asks dlsym, and so us, for the functions it stands in front
// of while it does not know them itself. Not exported, so what calls them here is bound to them.
//
// As ISO C says. Any thread, at any time. Compiled so that none of the loops becomes a call of what it defines.
#include <cstddef>

extern "C" {

size_t strlen(const char* text) {
  const char* end = text;
  while (*end != '\0') ++end;
  return static_cast<size_t>(end - text);
}

int strcmp(const char* a, const char* b) {
  for (; *a == *b && *a != '\0'; ++a, ++b) {
  }
  return static_cast<unsigned char>(*a) - static_cast<unsigned char>(*b);
}

int strncmp(const char* a, const char* b, size_t most) {
  for (; most != 0; ++a, ++b, --most) {
    if (*a != *b || *a == '\0') return static_cast<unsigned char>(*a) - static_cast<unsigned char>(*b);
  }
  return 0;
}

char* strchr(const char* text, int wanted) {
  for (;; ++text) {
    if (*text == static_cast<char>(wanted)) return const_cast<char*>(text);
    if (*text == '\0') return nullptr;
  }
}

char* strrchr(const char* text, int wanted) {
  const char* last = nullptr;
  for (;; ++text) {
    if (*text == static_cast<char>(wanted)) last = text;
    if (*text == '\0') return const_cast<char*>(last);
  }
}

size_t strcspn(const char* text, const char* stop) {
  size_t length = 0;
  for (; text[length] != '\0'; ++length) {
    for (const char* at = stop; *at != '\0'; ++at) {
      if (*at == text[length]) return length;
    }
  }
  return length;
}

void* memcpy(void* __restrict to, const void* __restrict from, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
  return to;
}

void* memset(void* to, int value, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<char*>(to)[i] = static_cast<char>(value);
  return to;
}

int memcmp(const void* a, const void* b, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const int difference = static_cast<const unsigned char*>(a)[i] - static_cast<const unsigned char*>(b)[i];
    if (difference != 0) return difference;
  }
  return 0;
}

void* memchr(const void* from, int wanted, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    const auto* at = static_cast<const unsigned char*>(from) + i;
    if (*at == static_cast<unsigned char>(wanted)) return const_cast<unsigned char*>(at);
  }
  return nullptr;
}

}  // extern "C"
