// One argument of more than 16 KiB, whose size has an attribute of another form; launch bounds that no chip has.
struct Wide { char bytes[17000]; };
extern "C" __global__ void __launch_bounds__(2048) wide(const Wide value, int index, int *out) { out[0] = value.bytes[index]; }
