// The words in which one kernel source says the same to OpenCL C and to CUDA C++: this is OpenCL's half.

#define KERNEL __kernel
#define GLOBAL __global
#define LOCAL __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define GLOBAL_ID_X ((int)get_global_id(0))
#define GROUP_ID_X ((int)get_group_id(0))
#define GROUP_ID_Y ((int)get_group_id(1))
#define LOCAL_ID_X ((int)get_local_id(0))
#define LOCAL_ID_Y ((int)get_local_id(1))
#define GLOBAL_SIZE_X ((int)get_global_size(0))
#define FLOAT4(x, y, z, w) ((float4)(x, y, z, w))
