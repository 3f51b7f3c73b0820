// How many keys of each block have each value of four bits: per warp by ballots, then added up.
__kernel void radix_count(__global const uint* keys, __global uint* counts, uint shift, uint n) {
  __local uint block_counts[16];
  const uint thread = __nvvm_read_ptx_sreg_tid_x(), block = __nvvm_read_ptx_sreg_ctaid_x();
  const uint i = block * __nvvm_read_ptx_sreg_ntid_x() + thread;
  if (thread < 16) block_counts[thread] = 0;
  __nvvm_bar_sync(0);
  const uint digit = i < n ? keys[i] >> shift & 15 : 16;
  for (uint d = 0; d < 16; ++d) {
    const uint same = __nvvm_vote_ballot_sync(0xffffffff, digit == d);
    if ((thread & 31) == 0 && same != 0) __sync_fetch_and_add(&block_counts[d], (uint)__builtin_popcount(same));
  }
  __nvvm_bar_sync(0);
  if (thread < 16) counts[block * 16 + thread] = block_counts[thread];
}
