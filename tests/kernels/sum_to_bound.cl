// Two kernels: the first writes how far the loop of the second goes.
__kernel void set_bound(__global uint* bound, uint n) { *bound = n; }
__kernel void sum_to_bound(__global const uint* bound, __global float* out) {
  const uint thread = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  float sum = 0;
  const uint n = *bound;
  for (uint i = 0; i < n; ++i) sum = sum * 0.5f + (float)(i ^ thread);
  out[thread] = sum;
}
