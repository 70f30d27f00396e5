// The words in which one kernel source says the same to OpenCL C and to CUDA C++: this is CUDA's half.

#define KERNEL extern "C" __global__
#define GLOBAL
#define GLOBAL_ID_X ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define GLOBAL_SIZE_X ((int)(gridDim.x * blockDim.x))

__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
