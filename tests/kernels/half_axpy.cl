// y += a·x on halves: loaded to float, rounded once on the way back.
__kernel void half_axpy(float a, __global const half* x, __global half* y, uint n) {
  const uint i = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  if (i >= n) return;
  __builtin_store_halff(__nvvm_fma_rn_f(a, __builtin_load_halff(x + i), __builtin_load_halff(y + i)), y + i);
}
