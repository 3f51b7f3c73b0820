// A tile through shared memory, one column wider than it needs to be so that no two lanes meet in a bank.
__kernel void transpose(__global const double* in, __global double* out, uint width, uint height) {
  __local double tile[16][17];
  const uint x = __nvvm_read_ptx_sreg_tid_x(), y = __nvvm_read_ptx_sreg_tid_y();
  const uint column = __nvvm_read_ptx_sreg_ctaid_x() * 16, row = __nvvm_read_ptx_sreg_ctaid_y() * 16;
  if (column + x < width && row + y < height) tile[y][x] = in[(row + y) * width + column + x];
  __nvvm_bar_sync(0);
  if (row + x < height && column + y < width) out[(column + y) * height + row + x] = tile[x][y];
}
