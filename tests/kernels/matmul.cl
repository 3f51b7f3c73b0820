// c = a · b for square matrices whose side is a multiple of the tile: 16 × 16 threads share a tile of each.
#define TILE 16
__kernel void matmul(__global const float* a, __global const float* b, __global float* c, uint side) {
  __local float tile_a[TILE][TILE], tile_b[TILE][TILE];
  const uint x = __nvvm_read_ptx_sreg_tid_x(), y = __nvvm_read_ptx_sreg_tid_y();
  const uint column = __nvvm_read_ptx_sreg_ctaid_x() * TILE + x, row = __nvvm_read_ptx_sreg_ctaid_y() * TILE + y;
  float sum = 0;
  for (uint tile = 0; tile < side; tile += TILE) {
    tile_a[y][x] = a[row * side + tile + x];
    tile_b[y][x] = b[(tile + y) * side + column];
    __nvvm_bar_sync(0);
    for (uint k = 0; k < TILE; ++k) sum += tile_a[y][k] * tile_b[k][x];
    __nvvm_bar_sync(0);
  }
  c[row * side + column] = sum;
}
