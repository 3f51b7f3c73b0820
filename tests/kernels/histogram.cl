// 256 bins: counted in shared memory by the block, then added to the result.
__kernel void histogram(__global const uchar* values, __global uint* bins, uint n) {
  __local uint counts[256];
  const uint thread = __nvvm_read_ptx_sreg_tid_x(), threads = __nvvm_read_ptx_sreg_ntid_x();
  const uint stride = threads * __nvvm_read_ptx_sreg_nctaid_x();
  for (uint i = thread; i < 256; i += threads) counts[i] = 0;
  __nvvm_bar_sync(0);
  for (uint i = __nvvm_read_ptx_sreg_ctaid_x() * threads + thread; i < n; i += stride) {
    __sync_fetch_and_add(&counts[values[i]], 1u);
  }
  __nvvm_bar_sync(0);
  for (uint i = thread; i < 256; i += threads) {
    if (counts[i] != 0) __sync_fetch_and_add(&bins[i], counts[i]);
  }
}
