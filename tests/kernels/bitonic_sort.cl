// One block sorts 512 keys in shared memory.
__kernel void bitonic_sort(__global long* keys) {
  __local long sorted[512];
  const uint thread = __nvvm_read_ptx_sreg_tid_x();
  keys += __nvvm_read_ptx_sreg_ctaid_x() * 512;
  sorted[thread] = keys[thread];
  sorted[thread + 256] = keys[thread + 256];
  for (uint size = 2; size <= 512; size *= 2) {
    for (uint stride = size / 2; stride > 0; stride /= 2) {
      __nvvm_bar_sync(0);
      const uint low = 2 * thread - (thread & (stride - 1));
      const long a = sorted[low], b = sorted[low + stride];
      if ((a > b) == ((low & size) == 0)) {
        sorted[low] = b;
        sorted[low + stride] = a;
      }
    }
  }
  __nvvm_bar_sync(0);
  keys[thread] = sorted[thread];
  keys[thread + 256] = sorted[thread + 256];
}
