// Three entries whose figures differ in every field that a report prints; reports of several releases lie beside this.
__constant__ float weights[5];

extern "C" __global__ void __launch_bounds__(256, 8) crowded(float *out, const float *in, int rounds) {
  float held[48];
#pragma unroll
  for (int i = 0; i < 48; i++) held[i] = in[i * 256 + threadIdx.x];
  for (int round = 0; round < rounds; round++) {
#pragma unroll
    for (int i = 0; i < 48; i++) held[i] = held[i] * held[(i * 7 + 3) % 48] + in[round];
  }
#pragma unroll
  for (int i = 0; i < 48; i++) out[i * 256 + threadIdx.x] = held[i];
}

extern "C" __global__ void staged(float *out, const float *in) {
  __shared__ float tile[65];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[64 - threadIdx.x] * weights[threadIdx.x % 5];
}

extern "C" __global__ void framed(float *out, int index) {
  float local[32];
  for (int i = 0; i < 32; i++) local[i] = out[i];
  for (int i = 0; i < index; i++) local[(i * 5) % 32] += local[(i * 3) % 32];
  out[threadIdx.x] = local[index % 32];
}
