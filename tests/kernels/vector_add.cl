__kernel void vector_add(__global const float* a, __global const float* b, __global float* sum, uint n) {
  const uint i = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  if (i < n) sum[i] = a[i] + b[i];
}
