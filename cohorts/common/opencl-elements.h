// Elements of 32 and of 16 bits, read and written as floats by one kernel source: this is OpenCL's half. ELEMENT is a
// dtype of the contract. Sixteen bits are a matter of storage here, so that a device without half arithmetic has them too.

#define IS_float32 1
#define IS_float16 2
#define IS_bfloat16 3
#define IS_(dtype) IS_##dtype
#define IS(dtype) IS_(dtype)

#if IS(ELEMENT) == IS_float32
#define VALUE float
#define LOAD(from, i) ((from)[i])
#define STORE(to, i, v) ((to)[i] = (v))
#define LOAD4(from, i) (((GLOBAL const float4 *)(from))[i])
#define STORE4(to, i, v) (((GLOBAL float4 *)(to))[i] = (v))
#elif IS(ELEMENT) == IS_float16
#define VALUE half
#define LOAD(from, i) vload_half(i, from)
#define STORE(to, i, v) vstore_half_rte(v, i, to)
#define LOAD4(from, i) vload_half4(i, from)
#define STORE4(to, i, v) vstore_half4_rte(v, i, to)
#elif IS(ELEMENT) == IS_bfloat16
static inline ushort to_bfloat16(float v) {
  uint bits = as_uint(v);
  return isnan(v) ? 0x7fc0 : (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#define VALUE ushort
#define LOAD(from, i) as_float((uint)(from)[i] << 16)
#define STORE(to, i, v) ((to)[i] = to_bfloat16(v))
#define LOAD4(from, i) as_float4(convert_uint4(vload4(i, from)) << 16)
#define STORE4(to, i, v) store4(to, i, v)
static inline void store4(GLOBAL ushort *to, size_t i, float4 v) {
  vstore4((ushort4)(to_bfloat16(v.x), to_bfloat16(v.y), to_bfloat16(v.z), to_bfloat16(v.w)), i, to);
}
#else
#error ELEMENT is none of float32, float16 and bfloat16
#endif
