// The workloads' kernels as PTX text, for any GPU since Volta: the driver translates them, real or emulated.
#ifndef METE_LAB_LOAD_KERNELS_H_
#define METE_LAB_LOAD_KERNELS_H_

namespace mete::lab {

// compute(out, iterations): 16 fused multiply-adds in eight independent chains, `iterations` times. It stores only if
// the sum has a value that it cannot have, so that no compiler may drop the work and no memory is touched. stream(from,
// to, vectors, iterations): copies `vectors` vectors of 16 bytes, `iterations` times. illegal(address): stores to an
// address that nobody allocated. misaligned(address): stores a word beside its alignment. trap(): stops itself.
inline constexpr char kKernels[] = R"ptx(
.version 6.0
.target sm_70
.address_size 64

.visible .entry compute(.param .u64 out, .param .u32 iterations)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .f32 %f<12>;
  .reg .b64 %d<2>;

  ld.param.u32 %r0, [iterations];
  mov.u32 %r1, %tid.x;
  cvt.rn.f32.u32 %f0, %r1;
  mov.f32 %f8, 0f3F7FBE77;
  mov.f32 %f9, 0f3A83126F;
  add.f32 %f1, %f0, %f9;
  add.f32 %f2, %f1, %f9;
  add.f32 %f3, %f2, %f9;
  add.f32 %f4, %f3, %f9;
  add.f32 %f5, %f4, %f9;
  add.f32 %f6, %f5, %f9;
  add.f32 %f7, %f6, %f9;
  mov.u32 %r2, 0;
  setp.eq.u32 %p0, %r0, 0;
  @%p0 bra finish;
again:
  fma.rn.f32 %f0, %f0, %f8, %f9;
  fma.rn.f32 %f1, %f1, %f8, %f9;
  fma.rn.f32 %f2, %f2, %f8, %f9;
  fma.rn.f32 %f3, %f3, %f8, %f9;
  fma.rn.f32 %f4, %f4, %f8, %f9;
  fma.rn.f32 %f5, %f5, %f8, %f9;
  fma.rn.f32 %f6, %f6, %f8, %f9;
  fma.rn.f32 %f7, %f7, %f8, %f9;
  fma.rn.f32 %f0, %f0, %f8, %f9;
  fma.rn.f32 %f1, %f1, %f8, %f9;
  fma.rn.f32 %f2, %f2, %f8, %f9;
  fma.rn.f32 %f3, %f3, %f8, %f9;
  fma.rn.f32 %f4, %f4, %f8, %f9;
  fma.rn.f32 %f5, %f5, %f8, %f9;
  fma.rn.f32 %f6, %f6, %f8, %f9;
  fma.rn.f32 %f7, %f7, %f8, %f9;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, %r0;
  @%p1 bra again;
finish:
  add.f32 %f0, %f0, %f1;
  add.f32 %f2, %f2, %f3;
  add.f32 %f4, %f4, %f5;
  add.f32 %f6, %f6, %f7;
  add.f32 %f0, %f0, %f2;
  add.f32 %f4, %f4, %f6;
  add.f32 %f0, %f0, %f4;
  mov.f32 %f10, 0fFF7FFFFF;
  setp.neu.f32 %p2, %f0, %f10;
  @%p2 bra done;
  ld.param.u64 %d0, [out];
  st.global.f32 [%d0], %f0;
done:
  ret;
}

.visible .entry stream(.param .u64 from, .param .u64 to, .param .u32 vectors, .param .u32 iterations)
{
  .reg .pred %p<3>;
  .reg .b32 %r<9>;
  .reg .f32 %f<4>;
  .reg .b64 %d<6>;

  ld.param.u64 %d0, [from];
  ld.param.u64 %d1, [to];
  ld.param.u32 %r0, [vectors];
  ld.param.u32 %r1, [iterations];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  mov.u32 %r6, %nctaid.x;
  mul.lo.u32 %r6, %r6, %r3;
  mov.u32 %r8, 0;
sweep:
  setp.ge.u32 %p0, %r8, %r1;
  @%p0 bra done;
  mov.u32 %r7, %r5;
  setp.ge.u32 %p1, %r7, %r0;
  @%p1 bra next;
copy:
  mul.wide.u32 %d2, %r7, 16;
  add.u64 %d3, %d0, %d2;
  add.u64 %d4, %d1, %d2;
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d3];
  st.global.v4.f32 [%d4], {%f0, %f1, %f2, %f3};
  add.u32 %r7, %r7, %r6;
  setp.lt.u32 %p2, %r7, %r0;
  @%p2 bra copy;
next:
  add.u32 %r8, %r8, 1;
  bra sweep;
done:
  ret;
}

.visible .entry illegal(.param .u64 address)
{
  .reg .b32 %r<1>;
  .reg .b64 %d<1>;
  ld.param.u64 %d0, [address];
  mov.u32 %r0, 1;
  st.global.u32 [%d0], %r0;
  ret;
}

.visible .entry misaligned(.param .u64 address)
{
  .reg .b32 %r<1>;
  .reg .b64 %d<2>;
  ld.param.u64 %d0, [address];
  add.u64 %d1, %d0, 1;
  mov.u32 %r0, 1;
  st.global.u32 [%d1], %r0;
  ret;
}

.visible .entry trap()
{
  trap;
  ret;
}
)ptx";

}  // namespace mete::lab

#endif  // METE_LAB_LOAD_KERNELS_H_
