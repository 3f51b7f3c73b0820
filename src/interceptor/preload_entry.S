/* The entry points of libmete-preload.so: dlsym, dlvsym, dlopen and dlmopen, which ask preload.cc and then jump to the
   real one with everything as the caller left it, and one function for each driver function that a proxy wraps, which
   jumps through a slot that is filled at its first call. */

#if defined(__x86_64__)

.macro GATE name, decide
        .globl  \name
        .hidden \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        movq    %rsp, %rdi
        movq    24(%rsp), %rsi
        call    \decide
        movq    %rax, %r11
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        testq   %r11, %r11
        je      1f
        jmp     *%r11
1:      movq    %rdi, %rax
        ret
        .cfi_endproc
        .size   \name, . - \name
.endm

.macro STUB name, index
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        endbr64
        movq    mete_slots + 8 * \index(%rip), %rax
        testq   %rax, %rax
        je      1f
        jmp     *%rax
1:      movl    $\index, %eax
        jmp     mete_bind_and_jump
        .size   \name, . - \name
.endm

        .text
        .type   mete_bind_and_jump, @function
mete_bind_and_jump:
        .cfi_startproc
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        subq    $72, %rsp
        .cfi_adjust_cfa_offset 72
        movsd   %xmm0, (%rsp)
        movsd   %xmm1, 8(%rsp)
        movsd   %xmm2, 16(%rsp)
        movsd   %xmm3, 24(%rsp)
        movsd   %xmm4, 32(%rsp)
        movsd   %xmm5, 40(%rsp)
        movsd   %xmm6, 48(%rsp)
        movsd   %xmm7, 56(%rsp)
        movl    %eax, %edi
        call    mete_bind
        movsd   (%rsp), %xmm0
        movsd   8(%rsp), %xmm1
        movsd   16(%rsp), %xmm2
        movsd   24(%rsp), %xmm3
        movsd   32(%rsp), %xmm4
        movsd   40(%rsp), %xmm5
        movsd   48(%rsp), %xmm6
        movsd   56(%rsp), %xmm7
        addq    $72, %rsp
        .cfi_adjust_cfa_offset -72
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   mete_bind_and_jump, . - mete_bind_and_jump

#elif defined(__aarch64__)

.macro GATE name, decide
        .globl  \name
        .hidden \name
        .type   \name, %function
        .p2align 4
\name:
        .cfi_startproc
        hint    #34                     /* bti c */
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset 29, -48
        .cfi_offset 30, -40
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        add     x0, sp, #16
        mov     x1, x30
        bl      \decide
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        cbz     x16, 1f
        br      x16
1:      ret
        .cfi_endproc
        .size   \name, . - \name
.endm

.macro STUB name, index
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
        hint    #34
        adrp    x16, mete_slots + 8 * \index
        ldr     x16, [x16, #:lo12:mete_slots + 8 * \index]
        cbz     x16, 1f
        br      x16
1:      mov     w16, #\index
        b       mete_bind_and_jump
        .size   \name, . - \name
.endm

        .text
        .type   mete_bind_and_jump, %function
mete_bind_and_jump:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w16
        bl      mete_bind
        mov     x16, x0
        ldp     q6, q7, [sp, #192]
        ldp     q4, q5, [sp, #160]
        ldp     q2, q3, [sp, #128]
        ldp     q0, q1, [sp, #96]
        ldr     x8, [sp, #80]
        ldp     x6, x7, [sp, #64]
        ldp     x4, x5, [sp, #48]
        ldp     x2, x3, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #224
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   mete_bind_and_jump, . - mete_bind_and_jump

#else
#error "libmete-preload.so is for x86-64 and aarch64"
#endif

        .hidden mete_slots

        GATE    mete_dlsym, mete_decide_dlsym
        GATE    mete_dlvsym, mete_decide_dlvsym
        GATE    mete_dlopen, mete_decide_dlopen
        GATE    mete_dlmopen, mete_decide_dlmopen

/* Under the versions by which programs know them: of the first glibc of the machine, and of 2.34, which moved them from
   libdl to libc. */
.macro EXPORT own, name, first, now
        .globl  \own\()_first
        .set    \own\()_first, \own
        .symver \own\()_first, \name@\first
        .globl  \own\()_now
        .set    \own\()_now, \own
        .symver \own\()_now, \name@@\now
.endm

#if defined(__x86_64__)
        EXPORT  mete_dlsym, dlsym, GLIBC_2.2.5, GLIBC_2.34
        EXPORT  mete_dlvsym, dlvsym, GLIBC_2.2.5, GLIBC_2.34
        EXPORT  mete_dlopen, dlopen, GLIBC_2.2.5, GLIBC_2.34
        EXPORT  mete_dlmopen, dlmopen, GLIBC_2.3.4, GLIBC_2.34
#else
        EXPORT  mete_dlsym, dlsym, GLIBC_2.17, GLIBC_2.34
        EXPORT  mete_dlvsym, dlvsym, GLIBC_2.17, GLIBC_2.34
        EXPORT  mete_dlopen, dlopen, GLIBC_2.17, GLIBC_2.34
        EXPORT  mete_dlmopen, dlmopen, GLIBC_2.17, GLIBC_2.34
#endif

#define METE_NAME(name, index) STUB name, index
#include "preload_names.inc"

        .section .note.GNU-stack, "", %progbits
