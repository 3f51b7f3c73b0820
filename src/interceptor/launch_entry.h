// The first instructions of an exported launch. A launch has more arguments than registers, and a C++ function that
// either passes them on or keeps them copies those on the stack first, which costs more than all that has to be
// decided. So on x86-64 the decision is written out; it is Straight() of launch_hooks.h, which other builds compile.
// Touches nothing but rax, r10 and r11, which a call may spoil; the stack is left as it was found.
#ifndef METE_INTERCEPTOR_LAUNCH_ENTRY_H_
#define METE_INTERCEPTOR_LAUNCH_ENTRY_H_

#include <cstddef>

#include "interceptor/launch_hooks.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define METE_LAUNCH_ENTRY_IN_ASSEMBLY 1

namespace mete::interceptor {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // members of class type, which the compiler lays out all the same
static_assert(offsetof(Process, attachment) == 0 && offsetof(Attachment, limits) == 0);
static_assert(offsetof(Attachment, gpu_count) == 24 && sizeof(Attachment::gpu_count) == 4);
static_assert(offsetof(ledger::LimitsPage, ended) == 40);
static_assert(offsetof(ledger::LimitsPage, gpu) + offsetof(ledger::GpuLimits, flags) == 108 && ledger::kTracked == 1);
#pragma GCC diagnostic pop
}  // namespace mete::interceptor

// `gated` goes through the gate; `at` is the function's place in the table of the driver.
#define METE_LAUNCH_ENTRY(gated, at)                                     \
  asm("movq _ZN4mete11interceptor10own_recordE@gottpoff(%rip), %rax\n\t" \
      "cmpq $0, %fs:(%rax)\n\t"                                          \
      "jne " #gated                                                      \
      "\n\t"                                                             \
      "movq _ZN4mete11interceptor7processE(%rip), %rax\n\t"              \
      "testq %rax, %rax\n\t"                                             \
      "je " #gated                                                       \
      "\n\t"                                                             \
      "movq (%rax), %rax\n\t"   /* its attachment */                     \
      "movq (%rax), %r10\n\t"   /* the limits page */                    \
      "movl 24(%rax), %eax\n\t" /* GPUs of the share */                  \
      "subl $1, %eax\n\t"                                                \
      "orl 40(%r10), %eax\n\t" /* ended */                               \
      "movl 108(%r10), %r11d\n\t"                                        \
      "andl $1, %r11d\n\t" /* tracked */                                 \
      "orl %r11d, %eax\n\t"                                              \
      "jne " #gated                                                      \
      "\n\t"                                                             \
      "movq _ZN4mete11interceptor6driverE+" #at                          \
      "(%rip), %rax\n\t"                                                 \
      "testq %rax, %rax\n\t"                                             \
      "je " #gated                                                       \
      "\n\t"                                                             \
      "jmp *%rax")
#endif

#endif  // METE_INTERCEPTOR_LAUNCH_ENTRY_H_
