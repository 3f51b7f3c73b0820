// y += a·x in double precision; a stride of the whole grid.
__kernel void axpy(double a, __global const double* x, __global double* y, ulong n) {
  const ulong stride = (ulong)__nvvm_read_ptx_sreg_ntid_x() * __nvvm_read_ptx_sreg_nctaid_x();
  for (ulong i = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x(); i < n;
       i += stride)
    y[i] = __nvvm_fma_rn_d(a, x[i], y[i]);
}
