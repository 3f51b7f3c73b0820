// Steps until a point escapes: lanes leave their loop at their own time.
__kernel void mandelbrot(__global ushort* steps, uint width, uint height, float scale, uint limit) {
  const uint x = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  const uint y = __nvvm_read_ptx_sreg_ctaid_y() * __nvvm_read_ptx_sreg_ntid_y() + __nvvm_read_ptx_sreg_tid_y();
  if (x >= width || y >= height) return;
  const float cx = ((int)x - (int)(width / 2)) * scale - 0.5f, cy = ((int)y - (int)(height / 2)) * scale;
  float a = 0, b = 0;
  uint count = 0;
  for (; count < limit && a * a + b * b < 4; ++count) {
    const float next = a * a - b * b + cx;
    b = 2 * a * b + cy;
    a = next;
  }
  steps[y * width + x] = (ushort)count;
}
