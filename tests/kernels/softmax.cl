// One block per row: maximum, sum of exponentials, quotient.
__kernel void softmax(__global const float* in, __global float* out, uint width) {
  __local float partial[128];
  const uint thread = __nvvm_read_ptx_sreg_tid_x(), threads = __nvvm_read_ptx_sreg_ntid_x();
  const uint row = __nvvm_read_ptx_sreg_ctaid_x();
  in += row * width;
  out += row * width;
  float highest = -3.0e38f;
  for (uint i = thread; i < width; i += threads) highest = __nvvm_fmax_f(highest, in[i]);
  partial[thread] = highest;
  __nvvm_bar_sync(0);
  for (uint reach = threads / 2; reach > 0; reach /= 2) {
    if (thread < reach) partial[thread] = __nvvm_fmax_f(partial[thread], partial[thread + reach]);
    __nvvm_bar_sync(0);
  }
  highest = partial[0];
  __nvvm_bar_sync(0);
  float sum = 0;
  for (uint i = thread; i < width; i += threads) sum += __nvvm_ex2_approx_f((in[i] - highest) * 1.44269504f);
  partial[thread] = sum;
  __nvvm_bar_sync(0);
  for (uint reach = threads / 2; reach > 0; reach /= 2) {
    if (thread < reach) partial[thread] += partial[thread + reach];
    __nvvm_bar_sync(0);
  }
  for (uint i = thread; i < width; i += threads)
    out[i] = __nvvm_ex2_approx_f((in[i] - highest) * 1.44269504f) / partial[0];
}
