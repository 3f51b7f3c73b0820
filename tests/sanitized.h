// Whether a test is built with a sanitizer, under which some things are slower and some cannot be.
#ifndef METE_TESTS_SANITIZED_H_
#define METE_TESTS_SANITIZED_H_

namespace mete::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace mete::testing

#endif  // METE_TESTS_SANITIZED_H_
