// Sparse matrix (rows compressed) times vector: a warp per row, its sum by shuffles.
__kernel void sparse(__global const uint* starts, __global const uint* columns, __global const float* values,
                     __global const float* x, __global float* y, uint rows) {
  const uint lane = __nvvm_read_ptx_sreg_tid_x() & 31;
  const uint row = (__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x()) / 32;
  if (row >= rows) return;
  float sum = 0;
  for (uint i = starts[row] + lane; i < starts[row + 1]; i += 32) sum += values[i] * x[columns[i]];
  for (int d = 16; d > 0; d /= 2) sum += __nvvm_shfl_sync_bfly_f32(0xffffffff, sum, d, 31);
  if (lane == 0) y[row] = sum;
}
