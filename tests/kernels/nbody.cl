// Accelerations of bodies on each other; four floats a body, moved as vectors, through shared memory.
__kernel void nbody(__global const float4* bodies, __global float4* accelerations, uint n) {
  __local float4 tile[64];
  const uint thread = __nvvm_read_ptx_sreg_tid_x(), threads = __nvvm_read_ptx_sreg_ntid_x();
  const uint i = __nvvm_read_ptx_sreg_ctaid_x() * threads + thread;
  const float4 me = bodies[i < n ? i : 0];
  float ax = 0, ay = 0, az = 0;
  for (uint first = 0; first < n; first += threads) {
    const float4 none = (float4)(0, 0, 0, 0);
    tile[thread] = first + thread < n ? bodies[first + thread] : none;
    __nvvm_bar_sync(0);
    for (uint k = 0; k < threads; ++k) {
      const float4 other = tile[k];
      const float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
      const float inverse = __nvvm_rsqrt_approx_f(dx * dx + dy * dy + dz * dz + 0.01f);
      const float pull = other.w * inverse * inverse * inverse;
      ax += dx * pull;
      ay += dy * pull;
      az += dz * pull;
    }
    __nvvm_bar_sync(0);
  }
  const float4 result = (float4)(ax, ay, az, 0);
  if (i < n) accelerations[i] = result;
}
