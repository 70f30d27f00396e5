// The words in which one kernel source says the same to OpenCL C and to CUDA C++: this is OpenCL's half.

#define KERNEL __kernel
#define GLOBAL __global
#define GLOBAL_ID_X ((int)get_global_id(0))
#define GLOBAL_SIZE_X ((int)get_global_size(0))
