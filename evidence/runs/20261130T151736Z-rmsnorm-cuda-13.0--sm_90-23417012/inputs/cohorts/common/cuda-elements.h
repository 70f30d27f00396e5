// Elements of 32 and of 16 bits, read and written as floats by one kernel source: this is CUDA's half. ELEMENT is a dtype
// of the contract.

#define IS_float32 1
#define IS_float16 2
#define IS_bfloat16 3
#define IS_(dtype) IS_##dtype
#define IS(dtype) IS_(dtype)

#if IS(ELEMENT) == IS_float32
#define VALUE float
#define LOAD(from, i) ((from)[i])
#define STORE(to, i, v) ((to)[i] = (v))
#define LOAD4(from, i) (((const float4 *)(from))[i])
#define STORE4(to, i, v) (((float4 *)(to))[i] = (v))
#else
#define VALUE unsigned short
#if IS(ELEMENT) == IS_float16
__device__ inline float to_float(unsigned short bits) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}
__device__ inline unsigned short to_element(float v) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  return bits;
}
#elif IS(ELEMENT) == IS_bfloat16
__device__ inline float to_float(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
__device__ inline unsigned short to_element(float v) {
  unsigned bits = __float_as_uint(v);
  return v != v ? 0x7fc0 : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#else
#error ELEMENT is none of float32, float16 and bfloat16
#endif
#define LOAD(from, i) to_float((from)[i])
#define STORE(to, i, v) ((to)[i] = to_element(v))
#define LOAD4(from, i) load4(((const ushort4 *)(from))[i])
#define STORE4(to, i, v) (((ushort4 *)(to))[i] = store4(v))
__device__ inline float4 load4(ushort4 four) {
  return make_float4(to_float(four.x), to_float(four.y), to_float(four.z), to_float(four.w));
}
__device__ inline ushort4 store4(float4 v) {
  return make_ushort4(to_element(v.x), to_element(v.y), to_element(v.z), to_element(v.w));
}
#endif
