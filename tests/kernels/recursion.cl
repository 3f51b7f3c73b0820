// Binomial coefficients by their definition: functions that call themselves, and a choice by value.
__attribute__((noinline)) static ulong choose(uint n, uint k) {
  if (k == 0 || k == n) return 1;
  return choose(n - 1, k - 1) + choose(n - 1, k);
}
typedef struct {
  uint n, k;
  ulong bias[3];
} Question;
__attribute__((noinline)) static ulong answer(Question q) {
  switch (q.k % 5) {
    case 0: return choose(q.n, q.k) + q.bias[0];
    case 1: return choose(q.n, q.k) ^ q.bias[1];
    case 2: return choose(q.n, q.k) * q.bias[2];
    case 3: return ~choose(q.n, q.k);
    default: return choose(q.n, q.k) >> 1;
  }
}
__kernel void recursion(__global ulong* results, uint n) {
  Question q = {n, __nvvm_read_ptx_sreg_tid_x() % (n + 1), {3, 5, 7}};
  results[__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x()] = answer(q);
}
