// Exclusive prefix sums inside each block: two buffers in shared memory, log2 steps.
__kernel void scan(__global const uint* values, __global uint* sums, uint n) {
  __local uint buffer[2][256];
  const uint thread = __nvvm_read_ptx_sreg_tid_x(), threads = __nvvm_read_ptx_sreg_ntid_x();
  const uint i = __nvvm_read_ptx_sreg_ctaid_x() * threads + thread;
  uint from = 0;
  buffer[0][thread] = thread > 0 && i < n ? values[i - 1] : 0;
  __nvvm_bar_sync(0);
  for (uint distance = 1; distance < threads; distance *= 2) {
    uint sum = buffer[from][thread];
    if (thread >= distance) sum += buffer[from][thread - distance];
    from = 1 - from;
    buffer[from][thread] = sum;
    __nvvm_bar_sync(0);
  }
  if (i < n) sums[i] = buffer[from][thread];
}
