/* A whole driver-API program: adds two vectors on the GPU and shows what the driver says there is to use.

   cc -I build/release/include docs/examples/first-program/first.c -L build/release/lib -lcuda -o first */
#include <stdio.h>
#include <stdlib.h>

#include "mete/cuda.h"

#define CHECK(call)                                                        \
  do {                                                                     \
    CUresult result_ = (call);                                             \
    if (result_ != CUDA_SUCCESS) {                                         \
      const char* name_ = "?";                                             \
      cuGetErrorName(result_, &name_);                                     \
      fprintf(stderr, "%s: %s (%d)\n", #call, name_, (int)result_);        \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

/* c[i] = a[i] + b[i]; written by hand, or made by: clang -x cl --target=nvptx64-nvidia-cuda -Xclang -target-cpu -Xclang sm_70 -O2 -S */
static const char kernel[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {\n"
    "  .reg .pred %p;\n"
    "  .reg .b32 %r<5>;\n"
    "  .reg .f32 %f<4>;\n"
    "  .reg .b64 %d<8>;\n"
    "  mov.u32 %r1, %ctaid.x;\n"
    "  mov.u32 %r2, %ntid.x;\n"
    "  mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "  ld.param.u32 %r0, [n];\n"
    "  setp.ge.u32 %p, %r4, %r0;\n"
    "  @%p bra done;\n"
    "  mul.wide.u32 %d0, %r4, 4;\n"
    "  ld.param.u64 %d1, [a];\n"
    "  ld.param.u64 %d2, [b];\n"
    "  ld.param.u64 %d3, [c];\n"
    "  add.u64 %d4, %d1, %d0;\n"
    "  add.u64 %d5, %d2, %d0;\n"
    "  add.u64 %d6, %d3, %d0;\n"
    "  ld.global.f32 %f1, [%d4];\n"
    "  ld.global.f32 %f2, [%d5];\n"
    "  add.f32 %f3, %f1, %f2;\n"
    "  st.global.f32 [%d6], %f3;\n"
    "done:\n"
    "  ret;\n"
    "}\n";

int main(void) {
  enum { N = 100000 };
  static float a[N], b[N], c[N];
  for (int i = 0; i < N; ++i) {
    a[i] = (float)i;
    b[i] = 0.5f;
  }

  CUdevice device;
  CUcontext context;
  char name[96];
  size_t free_bytes, total_bytes;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDeviceGetName(name, sizeof name, device));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
  printf("%s: %.2f GiB free of %.2f GiB\n", name, (double)free_bytes / (1 << 30), (double)total_bytes / (1 << 30));

  CUdeviceptr da, db, dc;
  CHECK(cuMemAlloc(&da, sizeof a));
  CHECK(cuMemAlloc(&db, sizeof b));
  CHECK(cuMemAlloc(&dc, sizeof c));
  CHECK(cuMemcpyHtoD(da, a, sizeof a));
  CHECK(cuMemcpyHtoD(db, b, sizeof b));

  CUmodule module;
  CUfunction add;
  unsigned n = N;
  void* arguments[] = {&da, &db, &dc, &n};
  CHECK(cuModuleLoadData(&module, kernel));
  CHECK(cuModuleGetFunction(&add, module, "add"));
  CHECK(cuLaunchKernel(add, (N + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemcpyDtoH(c, dc, sizeof c));

  int wrong = 0;
  for (int i = 0; i < N; ++i) wrong += c[i] != a[i] + b[i];
  printf("%d sums, %d wrong\n", N, wrong);

  CUdeviceptr block;
  unsigned long long got = 0;
  while (cuMemAlloc(&block, (size_t)256 << 20) == CUDA_SUCCESS) got += 256;
  printf("then %llu MiB more before the driver refused\n", got);
  CHECK(cuDevicePrimaryCtxRelease(device));
  return wrong != 0;
}
