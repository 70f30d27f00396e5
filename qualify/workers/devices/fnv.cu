// FNV-1a 64 over a list of buffers in its exact parallel form (R9.5), equal bit for bit to the serial definition.
//
// The low byte of the state evolves alone, h' = (h ^ b) * 0xB3 mod 256, and triangularly: bit k of the next state is
// bit k of (this state ^ input), xor carries from lower bits. So eight rounds, one a bit, of an exclusive xor scan
// over the threads give every thread its incoming low byte. A thread then hashes its own bytes serially from that
// byte alone; the rest of the incoming state is linear (times PRIME^length) and is folded in afterwards.
//
// A tile is 64 KiB: 512 threads of 128 bytes. Blocks take tiles by ticket, number first, buffer second: a tile only ever
// waits for one that a running block holds. In each round a tile waits for one bit, by look-back: what every tile of its
// buffer before it adds to that bit, as far as the nearest one that knows the bit itself. So the tiles of one buffer
// advance together, each a little behind the one before, and a list of buffers hides what is left of the wait.
//
// Inside a thread, bit j of plane word (w, k) is bit k of byte 4 j + w: 32 sub-chunks of 4 bytes advance together.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define FNV_BASIS 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull
#define FNV_THREADS 512u
#define FNV_WARPS (FNV_THREADS / 32u)
#define FNV_UNIT 4  // Bytes of a sub-chunk.
#define FNV_THREAD_BYTES 128u
#define FNV_TILE_BYTES (FNV_THREADS * FNV_THREAD_BYTES)
#define FNV_ROW_WORDS 33u  // 32 words of a thread and one of padding: rows fall into different banks.

struct fnv_buffer {
    u64 address;
    u64 size_bytes;
    u64 first_tile;  // Index of the buffer's first tile in the arrays `low` and `partial`.
};

__device__ __forceinline__ u64 fnv_power(u64 exponent) {
    u64 result = 1, base = FNV_PRIME;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

// One stage of a 32 x 32 bit transpose: exchange the upper `shift` columns of row a with the lower ones of row b.
__device__ __forceinline__ void fnv_exchange(u32 &a, u32 &b, u32 shift, u32 mask) {
    const u32 t = ((a >> shift) ^ b) & mask;
    a ^= t << shift;
    b ^= t;
}

// Transpose rows[0..31] in place: afterwards bit j of row i is what bit i of row j was.
__device__ __forceinline__ void fnv_transpose(u32 *rows) {
#pragma unroll
    for (int i = 0; i < 16; i++) fnv_exchange(rows[i], rows[i + 16], 16, 0x0000ffffu);
#pragma unroll
    for (int g = 0; g < 32; g += 16)
#pragma unroll
        for (int i = g; i < g + 8; i++) fnv_exchange(rows[i], rows[i + 8], 8, 0x00ff00ffu);
#pragma unroll
    for (int g = 0; g < 32; g += 8)
#pragma unroll
        for (int i = g; i < g + 4; i++) fnv_exchange(rows[i], rows[i + 4], 4, 0x0f0f0f0fu);
#pragma unroll
    for (int g = 0; g < 32; g += 4)
#pragma unroll
        for (int i = g; i < g + 2; i++) fnv_exchange(rows[i], rows[i + 2], 2, 0x33333333u);
#pragma unroll
    for (int i = 0; i < 32; i += 2) fnv_exchange(rows[i], rows[i + 1], 1, 0x55555555u);
}

__device__ __forceinline__ u32 fnv_majority(u32 a, u32 b, u32 c) { return (a & b) | (c & (a | b)); }

// What the columns below k of x * 0xB3 carry into column k, a number c0 + 2 c1 + 4 c2 for each of 32 sub-chunks.
struct fnv_carry {
    u32 c0, c1, c2;
};

// Bits j - 1, j - 4, j - 5 and j - 7 of x, those that column j adds to bit j: 0xB3 = 1 + 2 + 16 + 32 + 128.
#define FNV_BELOW(x, j, d) ((j) >= (d) ? (x)[(j) - (d)] : 0u)

// Bit k of x * 0xB3 without the term x_k itself; x holds bits 0..k-1.
__device__ __forceinline__ u32 fnv_column(const u32 *x, int k, const fnv_carry &carry) {
    return FNV_BELOW(x, k, 1) ^ FNV_BELOW(x, k, 4) ^ FNV_BELOW(x, k, 5) ^ FNV_BELOW(x, k, 7) ^ carry.c0;
}

// Column j is complete (j < 7, so bit j - 7 is not there): its carry joins those into column j + 1.
__device__ __forceinline__ void fnv_next(const u32 *x, int j, fnv_carry &carry) {
    const u32 own = x[j], p = FNV_BELOW(x, j, 1), q = FNV_BELOW(x, j, 4), r = FNV_BELOW(x, j, 5);
    const u32 t = own ^ p ^ q, u = fnv_majority(own, p, q), v = fnv_majority(t, r, carry.c0);
    const u32 n1 = fnv_majority(u, v, carry.c1);
    carry.c0 = u ^ v ^ carry.c1;
    carry.c1 = n1 ^ carry.c2;
    carry.c2 = n1 & carry.c2;
}

// xor of all lower bits into each bit, itself included.
__device__ __forceinline__ u32 fnv_scan(u32 word) {
    word ^= word << 1;
    word ^= word << 2;
    word ^= word << 4;
    word ^= word << 8;
    word ^= word << 16;
    return word;
}

// Copy a tile into padded rows: 16 bytes at a time, all of a thread's on their way at once, where a whole tile is so
// aligned. Else the first word may reach back, the last one ahead, by up to three bytes; the arena has zones there.
__device__ __forceinline__ void fnv_load(u32 *rows, const u8 *source, u32 bytes) {
    if (bytes == FNV_TILE_BYTES && !((u64)source & 15)) {
        uint4 quads[FNV_THREAD_BYTES / 16];
#pragma unroll
        for (u32 i = 0; i < FNV_THREAD_BYTES / 16; i++) quads[i] = ((const uint4 *)source)[i * FNV_THREADS + threadIdx.x];
#pragma unroll
        for (u32 i = 0; i < FNV_THREAD_BYTES / 16; i++) {
            const u32 word = 4 * (i * FNV_THREADS + threadIdx.x);
            u32 *to = rows + (word / 32) * FNV_ROW_WORDS + word % 32;
            to[0] = quads[i].x, to[1] = quads[i].y, to[2] = quads[i].z, to[3] = quads[i].w;
        }
        return;
    }
    const u32 shift = 8u * (u32)((u64)source & 3);
    const u32 *words = (const u32 *)((u64)source & ~3ull);
    const u32 count = (bytes + 3) / 4;
    for (u32 i = threadIdx.x; i < count; i += FNV_THREADS) {
        const u32 low = words[i];
        const u32 word = shift ? __funnelshift_r(low, words[i + 1], shift) : low;
        rows[(i / 32) * FNV_ROW_WORDS + i % 32] = word;
    }
}

// What a tile says of each bit: four bits of a word, from 4 k on. Its own term, then the bit after the tile.
#define FNV_OWN 1u
#define FNV_OWN_VALUE 2u
#define FNV_AFTER 4u
#define FNV_AFTER_VALUE 8u

// The low byte is handed on bit by bit: look back over the tiles before this one. Only the owner writes a tile's word,
// each time with more in it, and a reader needs nothing but the word, so no order between words is asked for.
struct fnv_lookback {
    volatile u32 *said;  // This tile's word, behind those of the tiles before it.
    u32 number;          // Of the tile in its buffer.
    u32 warps;           // How many warps look back, 32 tiles each.
    u32 *found;          // Shared, a word a warp.
    u32 word;

    __device__ __forceinline__ u32 bit(u32 k, u32 own) {
        word |= (FNV_OWN | (own ? FNV_OWN_VALUE : 0u)) << (4u * k);
        if (threadIdx.x == 0) *said = word;
        u32 incoming;
        while (!seen(k, incoming)) __syncthreads();
        word |= (FNV_AFTER | ((incoming ^ own) ? FNV_AFTER_VALUE : 0u)) << (4u * k);
        if (threadIdx.x == 0) *said = word;
        return incoming;
    }

    // Whether some tile in sight knows its bit already; then `incoming` is bit k before this tile, in every thread.
    __device__ __forceinline__ bool seen(u32 k, u32 &incoming) {
        const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        if (warp < warps) {
            const u32 mine = before(k);
            const u32 after = __ballot_sync(0xffffffffu, mine & FNV_AFTER);
            const u32 nearest = after ? __ffs(after) - 1 : 32u;
            const u32 value = mine & (lane < nearest ? FNV_OWN_VALUE : lane == nearest ? FNV_AFTER_VALUE : 0u);
            const u32 sum = __popc(__ballot_sync(0xffffffffu, value)) & 1u;
            if (lane == 0) found[warp] = sum | (after ? 2u : 0u);
        }
        __syncthreads();
        const u32 all = lane < warps ? found[lane] : 0u;
        const u32 knows = __ballot_sync(0xffffffffu, all & 2u);
        const u32 sums = __ballot_sync(0xffffffffu, all & 1u);
        incoming = knows ? __popc(sums & (knows ^ (knows - 1u))) & 1u : 0u;
        return knows != 0;
    }

    // What the tile that lies 1 + threadIdx.x before this one says of bit k; before a buffer's first lies the basis.
    __device__ __forceinline__ u32 before(u32 k) const {
        if (threadIdx.x >= number) return FNV_AFTER | (((FNV_BASIS >> k) & 1u) ? FNV_AFTER_VALUE : 0u);
        u32 says;
        while (!((says = said[-1 - (int)threadIdx.x] >> (4u * k)) & (FNV_OWN | FNV_AFTER))) __nanosleep(20);
        return says;
    }
};

// The incoming low byte of this thread: eight rounds of a block-wide exclusive xor scan. `back` takes the tile's own term
// of bit k and gives the bit that comes into the tile.
__device__ __forceinline__ u32 fnv_incoming(u32 (&m)[32], u32 valid_bytes, u32 (*parity)[FNV_WARPS], fnv_lookback &back) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    fnv_carry carries[FNV_UNIT] = {};
    u32 incoming = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        // m[8 w + j] holds x_j = state ^ input for j < k and the input for j >= k.
        u32 total = 0;
        u32 before[FNV_UNIT];
#pragma unroll
        for (int w = 0; w < FNV_UNIT; w++) {
            // Byte 4 j + w of the thread is there if it is below valid_bytes.
            const u32 units = valid_bytes > (u32)w ? (valid_bytes - w + FNV_UNIT - 1) / FNV_UNIT : 0;
            const u32 there = units >= 32 ? 0xffffffffu : (1u << units) - 1u;
            before[w] = total;
            total ^= (m[8 * w + k] ^ fnv_column(m + 8 * w, k, carries[w])) & there;
        }
        const u32 inclusive = fnv_scan(total);
        const u32 ballot = __ballot_sync(0xffffffffu, inclusive >> 31);
        const u32 below = __popc(ballot & ((1u << lane) - 1u)) & 1u;
        if (lane == 0) parity[k & 1][warp] = __popc(ballot) & 1u;
        __syncthreads();
        const u32 warps = __ballot_sync(0xffffffffu, lane < FNV_WARPS && parity[k & 1][lane & (FNV_WARPS - 1u)]);
        const u32 low = back.bit(k, __popc(warps) & 1u);
        const u32 start = low ^ (__popc(warps & ((1u << warp) - 1u)) & 1u) ^ below;
        incoming |= start << k;
        const u32 spread = (inclusive ^ total) ^ (0u - start);
#pragma unroll
        for (int w = 0; w < FNV_UNIT; w++) {
            m[8 * w + k] ^= spread ^ before[w];
            if (k < 7) fnv_next(m + 8 * w, k, carries[w]);
        }
    }
    return incoming;
}

// h, the serial hash of `bytes` bytes from state `h`.
__device__ __forceinline__ u64 fnv_serial(const u32 *row, u32 bytes, u64 h) {
    const u32 words = bytes / 4;
    for (u32 i = 0; i < words; i++) {
        const u32 word = row[i];
#pragma unroll
        for (int b = 0; b < 4; b++) h = (h ^ ((word >> (8 * b)) & 0xffu)) * FNV_PRIME;
    }
    for (u32 i = 4 * words; i < bytes; i++) h = (h ^ ((row[i / 4] >> (8 * (i & 3))) & 0xffu)) * FNV_PRIME;
    return h;
}

struct fnv_shared {
    u32 parity[2][FNV_WARPS], found[FNV_WARPS];
    u64 sums[FNV_WARPS];
    u64 rest[FNV_THREADS];  // PRIME to the bytes of a whole tile behind each thread's; here, since registers are short.
    u32 ticket;
};

// A tile's rows into bit planes: row 8 w + k holds bit k of byte w of each unit.
__device__ __forceinline__ void fnv_planes(u32 (&m)[32], const u32 *row) {
#pragma unroll
    for (int j = 0; j < 32; j++) m[j] = row[j];
    fnv_transpose(m);
}

// The tile's own term: its threads' serial hashes, each times what follows it.
__device__ __forceinline__ void fnv_term(fnv_shared &shared, const u32 *row, u32 bytes, u32 valid, u32 incoming,
                                         u64 *partial) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, mine = threadIdx.x * FNV_THREAD_BYTES;
    const u64 h = fnv_serial(row, valid, incoming);
    const bool whole = bytes == FNV_TILE_BYTES;
    const u32 rest = bytes > mine + valid ? bytes - mine - valid : 0u;
    const u64 row_power = whole ? fnv_power(FNV_THREAD_BYTES) : fnv_power(valid);
    u64 term = (h - (u64)incoming * row_power) * (whole ? shared.rest[threadIdx.x] : fnv_power(rest));
#pragma unroll
    for (int d = 16; d; d >>= 1) term += __shfl_down_sync(0xffffffffu, term, d);
    if (lane == 0) shared.sums[warp] = term;
    __syncthreads();
    if (threadIdx.x == 0) {
        u64 sum = 0;
        for (u32 v = 0; v < FNV_WARPS; v++) sum += shared.sums[v];
        *partial = sum;
    }
}

// `warps`, 1 to 16, is how far a tile looks back at once, 32 tiles each; more than run at a time are never needed.
extern "C" __global__ void __launch_bounds__(512, 2)
qualify_fnv_tiles(const fnv_buffer *buffers, const u32 *tile_buffer, const u32 *tile_number, u32 tiles, u32 *ticket,
                  u32 *said, u64 *partial, u32 warps) {
    extern __shared__ u32 rows[];
    __shared__ fnv_shared shared;
    shared.rest[threadIdx.x] = fnv_power((FNV_THREADS - 1u - threadIdx.x) * FNV_THREAD_BYTES);
    while (true) {
        if (threadIdx.x == 0) shared.ticket = atomicAdd(ticket, 1u);
        __syncthreads();
        const u32 turn = shared.ticket;
        if (turn >= tiles) return;
        const fnv_buffer buffer = buffers[tile_buffer[turn]];
        const u32 number = tile_number[turn];
        const u64 offset = (u64)number * FNV_TILE_BYTES;
        const u64 left = buffer.size_bytes - offset;
        const u32 bytes = left < FNV_TILE_BYTES ? (u32)left : FNV_TILE_BYTES;
        fnv_load(rows, (const u8 *)(buffer.address + offset), bytes);
        __syncthreads();

        const u32 mine = threadIdx.x * FNV_THREAD_BYTES;
        const u32 valid = bytes > mine ? min(bytes - mine, FNV_THREAD_BYTES) : 0u;
        const u32 *row = rows + threadIdx.x * FNV_ROW_WORDS;
        u32 m[32];
        fnv_planes(m, row);
        const u64 tile = buffer.first_tile + number;
        fnv_lookback back = {said + tile, number, warps, shared.found, 0u};
        const u32 incoming = fnv_incoming(m, valid, shared.parity, back);
        fnv_term(shared, row, bytes, valid, incoming, partial + tile);
    }
}

// One block a buffer: fold the tiles' terms, h = h * PRIME^bytes + term, in order.
extern "C" __global__ void __launch_bounds__(512)
qualify_fnv_fold(const fnv_buffer *buffers, const u64 *partial, u64 *digests) {
    __shared__ u64 sums[FNV_WARPS];
    const fnv_buffer buffer = buffers[blockIdx.x];
    const u64 tiles = (buffer.size_bytes + FNV_TILE_BYTES - 1) / FNV_TILE_BYTES;
    u64 sum = threadIdx.x == 0 ? FNV_BASIS * fnv_power(buffer.size_bytes) : 0;
    for (u64 t = threadIdx.x; t < tiles; t += FNV_THREADS) {
        const u64 end = (t + 1) * FNV_TILE_BYTES;
        sum += partial[buffer.first_tile + t] * fnv_power(end < buffer.size_bytes ? buffer.size_bytes - end : 0);
    }
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        u64 whole = 0;
        for (u32 v = 0; v < FNV_WARPS; v++) whole += sums[v];
        digests[blockIdx.x] = whole;
    }
}
