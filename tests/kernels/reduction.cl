// One sum per block: shuffles inside a warp, shared memory between warps.
__kernel void reduction(__global const int* values, __global int* sums, uint n) {
  __local int partial[32];
  const uint thread = __nvvm_read_ptx_sreg_tid_x(), threads = __nvvm_read_ptx_sreg_ntid_x();
  const uint block = __nvvm_read_ptx_sreg_ctaid_x(), stride = threads * __nvvm_read_ptx_sreg_nctaid_x();
  int sum = 0;
  for (uint i = block * threads + thread; i < n; i += stride) sum += values[i];
  for (int d = 16; d > 0; d >>= 1) sum += __nvvm_shfl_sync_down_i32(0xffffffff, sum, d, 31);
  if ((thread & 31) == 0) partial[thread >> 5] = sum;
  __nvvm_bar_sync(0);
  if (thread < 32) {
    sum = thread < (threads + 31) / 32 ? partial[thread] : 0;
    for (int d = 16; d > 0; d >>= 1) sum += __nvvm_shfl_sync_down_i32(0xffffffff, sum, d, 31);
    if (thread == 0) sums[block] = sum;
  }
}
