// Steps until a number reaches one: each lane leaves its loop at its own time.
__kernel void collatz(__global const ulong* start, __global uint* steps, uint n) {
  const uint i = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  if (i >= n) return;
  ulong value = start[i];
  uint count = 0;
  while (value != 1) {
    if (value % 2 == 0)
      value /= 2;
    else
      value = 3 * value + 1;
    ++count;
  }
  steps[i] = count;
}
