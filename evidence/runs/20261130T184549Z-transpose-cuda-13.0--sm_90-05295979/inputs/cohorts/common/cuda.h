// The words in which one kernel source says the same to OpenCL C and to CUDA C++: this is CUDA's half.

#define KERNEL extern "C" __global__
#define GLOBAL
#define LOCAL __shared__
#define BARRIER __syncthreads()
#define GLOBAL_ID_X ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define GROUP_ID_X ((int)blockIdx.x)
#define GROUP_ID_Y ((int)blockIdx.y)
#define LOCAL_ID_X ((int)threadIdx.x)
#define LOCAL_ID_Y ((int)threadIdx.y)
#define GLOBAL_SIZE_X ((int)(gridDim.x * blockDim.x))
#define FLOAT4(x, y, z, w) make_float4(x, y, z, w)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)

__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
