// The null driver's truth across processes: a file that all of them map, named by METE_NULL_DRIVER_TRUTH. Every tracked
// byte is counted in it; the moment that they are more than the quota, the driver says so and aborts, so that no sample
// can miss it. A process that exits gives its bytes back; one that is killed keeps them. Any process, any thread.
#ifndef METE_BENCH_NULL_DRIVER_TRUTH_H_
#define METE_BENCH_NULL_DRIVER_TRUTH_H_

#include <atomic>

struct NullTruth {
  std::atomic<unsigned long long> quota[2];  // 0: none; bytes, by device
  std::atomic<unsigned long long> used[2];
  std::atomic<unsigned long long> highest[2];
};

#endif  // METE_BENCH_NULL_DRIVER_TRUTH_H_
