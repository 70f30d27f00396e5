// What the harness itself runs on a CUDA device: patterns, values, poison, zones, scrub and flush. Each kernel repeats
// a definition of qualify/patterns.py bit for bit; the contract test of devices compares them.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define MIX_STEP 0x9e3779b97f4a7c15ull

// SplitMix64's output number `index` for a seed.
__device__ __forceinline__ u64 mix(u64 seed, u64 index) {
    u64 z = seed + (index + 1) * MIX_STEP;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__device__ __forceinline__ u8 zone_byte(u64 seed, u64 flip, u64 offset) {
    return (u8)((mix(seed, offset / 8) ^ flip) >> (8 * (offset % 8)));
}

#define FOR_EACH(i, count) \
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (count); i += (u64)gridDim.x * blockDim.x)

// The whole arena; `words` counts 8 bytes each, `flip` is 0 or all ones.
extern "C" __global__ void qualify_zone_fill(u64 *arena, u64 words, u64 seed, u64 flip) {
    FOR_EACH(i, words) arena[i] = mix(seed, i) ^ flip;
}

struct zone_gap {
    u64 from;
    u64 to;
};

// found[0] counts the bytes that differ, found[1] becomes the least offset of one; a block a gap, or several.
extern "C" __global__ void qualify_zone_check(const u8 *arena, const zone_gap *gaps, u32 count, u64 seed, u64 flip,
                                              u64 *found) {
    for (u32 g = blockIdx.x; g < count; g += gridDim.x)
        for (u64 i = gaps[g].from + threadIdx.x; i < gaps[g].to; i += blockDim.x)
            if (arena[i] != zone_byte(seed, flip, i)) {
                atomicAdd(found, 1ull);
                atomicMin(found + 1, i);
            }
}

__device__ __forceinline__ u64 poison_word(u64 seed, u64 index, u64 top, u64 below, u64 invert) {
    const u64 word = mix(seed, index);
    return ((word & ~top) | ((~word & below) << 1)) ^ invert;
}

// A buffer that is poisoned from its start; `top` and `below` mask a float's two top exponent bits, `invert` is 0 or all
// ones.
struct poison_row {
    u8 *buffer;
    u64 bytes, seed, top, below, invert;
};

// All rows of a list at once; blocks side by side share a buffer, blocks below each other take other rows.
extern "C" __global__ void qualify_poison(const poison_row *rows, u32 count) {
    for (u32 r = blockIdx.y; r < count; r += gridDim.y) {
        const poison_row row = rows[r];
        FOR_EACH(i, (row.bytes + 7) / 8) {
            const u64 word = poison_word(row.seed, i, row.top, row.below, row.invert);
            const u64 left = row.bytes - 8 * i;
            if (left >= 8 && ((u64)row.buffer & 7) == 0) {
                ((u64 *)row.buffer)[i] = word;
            } else {
                for (u64 b = 0; b < 8 && b < left; b++) row.buffer[8 * i + b] = (u8)(word >> (8 * b));
            }
        }
    }
}

// found[0] counts the elements that equal their poison, and in `beside` (if any) its complement; found[1] becomes the
// least index of one.
extern "C" __global__ void qualify_unwritten(const u8 *buffer, const u8 *beside, u64 elements, u32 size, u64 seed,
                                             u64 top, u64 below, u64 invert, u64 *found) {
    FOR_EACH(i, elements) {
        bool equal = true;
        for (u32 b = 0; b < size; b++) {
            const u64 at = i * size + b;
            const u8 poison = (u8)(poison_word(seed, at / 8, top, below, invert) >> (8 * (at % 8)));
            equal = equal && buffer[at] == poison && (!beside || beside[at] == (u8)~poison);
        }
        if (equal) {
            atomicAdd(found, 1ull);
            atomicMin(found + 1, i);
        }
    }
}

struct words4 {
    u32 w[4];
};

// Philox4x32-10: counter (index low, index high, block, 0), key the seed.
__device__ __forceinline__ words4 philox(u64 seed, u64 index, u32 block) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    u32 c0 = (u32)index, c1 = (u32)(index >> 32), c2 = block, c3 = 0;
    for (int round = 0; round < 10; round++) {
        const u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (u32)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return {{c0, c1, c2, c3}};
}

// The floor of base + scale * word / 2^32.
__device__ __forceinline__ i64 uniform_fixed(u64 seed, u64 index, i64 base, i64 scale) {
    const u32 word = philox(seed, index, 0).w[0];
    return base + (scale >> 32) * (i64)word + (i64)(((scale & 0xffffffffll) * (u64)word) >> 32);
}

// The floor of base + scale * (sum of twelve words of 16 bits, centred) / 65,536.
__device__ __forceinline__ i64 normal_fixed(u64 seed, u64 index, i64 base, i64 scale) {
    const words4 first = philox(seed, index, 0), second = philox(seed, index, 1);
    i64 sum = 0;
    for (int i = 0; i < 4; i++) sum += (first.w[i] & 0xffffu) + (first.w[i] >> 16);
    for (int i = 0; i < 2; i++) sum += (second.w[i] & 0xffffu) + (second.w[i] >> 16);
    sum -= 12 * 65535 / 2;
    return base + (scale >> 16) * sum + (((scale & 0xffffll) * sum) >> 16);
}

// An element type as `qualify.elements.Dtype` gives it; exponent_bits is 0 for integers.
struct dtype {
    u32 bits, exponent_bits, mantissa_bits, bias;
    u64 sign_bit, greatest, overflow;
};

__device__ __forceinline__ u64 round_to_float(i64 fixed, const dtype &t) {
    const u64 sign = fixed < 0 ? t.sign_bit : 0;
    const u64 magnitude = fixed < 0 ? (u64)-fixed : (u64)fixed;
    if (magnitude == 0) return 0;
    const int top = 63 - __clzll(magnitude);
    const int exponent = max(top - 32, 1 - (int)t.bias);
    const int drop = exponent - (int)t.mantissa_bits + 32;
    u64 units;
    if (drop > 0) {
        const u64 half = (1ull << (drop - 1)) - 1;
        units = (magnitude + half + ((magnitude >> drop) & 1)) >> drop;
    } else {
        units = magnitude << -drop;
    }
    const u64 bits = ((u64)(exponent + (int)t.bias - 1) << t.mantissa_bits) + units;
    return sign | (bits > t.greatest ? t.overflow : bits);
}

__device__ __forceinline__ u64 round_to_integer(i64 fixed, const dtype &t) {
    const i64 nearest = (fixed + ((1ll << 31) - 1) + ((fixed >> 32) & 1)) >> 32;
    const i64 least = t.bits == 64 ? -(1ll << 62) : -(i64)t.sign_bit;
    const i64 most = t.greatest > (1ull << 62) ? (1ll << 62) : (i64)t.greatest;
    const i64 held = nearest < least && t.sign_bit ? least : nearest < 0 && !t.sign_bit ? 0 : nearest > most ? most : nearest;
    return (u64)held;
}

// One element of a buffer from a recipe of `steps.Values`; one in eight takes one of `specials` where there are any.
extern "C" __global__ void qualify_values(u8 *buffer, u64 elements, dtype t, u32 normal, i64 base, i64 scale, u64 seed,
                                          const u64 *specials, u32 special_count) {
    FOR_EACH(i, elements) {
        const i64 fixed = normal ? normal_fixed(seed, i, base, scale) : uniform_fixed(seed, i, base, scale);
        u64 bits = t.exponent_bits ? round_to_float(fixed, t) : round_to_integer(fixed, t);
        if (special_count) {
            const words4 choice = philox(seed, i, 1);
            if (choice.w[2] % 8 == 0) bits = specials[((u64)choice.w[3] * special_count) >> 32];
        }
        const u32 size = t.bits / 8;
        for (u32 b = 0; b < size; b++) buffer[i * size + b] = (u8)(bits >> (8 * b));
    }
}

// Overwrite all shared memory that a block can have; launched with the opt-in maximum, so that one block fills a
// multiprocessor. `sink` keeps the stores.
extern "C" __global__ void qualify_scrub(u64 seed, u32 words, u32 *reached, u32 count) {
    extern __shared__ u32 shared[];
    volatile u32 *all = shared;  // Nothing reads it here, and it is written nevertheless.
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) all[i] = (u32)mix(seed, i);
    u32 unit;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(unit));
    if (threadIdx.x == 0) reached[unit % count] = 1u;
}

// Read neutral memory, so that what was in the cache before is not; reading leaves no dirty lines.
extern "C" __global__ void qualify_flush(const uint4 *memory, u64 count, u32 *sink) {
    u32 sum = 0;
    FOR_EACH(i, count) {
        const uint4 v = memory[i];
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x5eed5eedu) atomicAdd(sink, 1u);
}

// Copy neutral memory, 16 bytes a thread at a time: what a board can move is measured with it.
extern "C" __global__ void qualify_copy(uint4 *to, const uint4 *from, u64 count) {
    FOR_EACH(i, count) to[i] = from[i];
}

// Elements that lie apart into a row, or back: runs along three axes, of which the outermost has any count.
extern "C" __global__ void qualify_move(u8 *apart, u8 *packed, u64 bytes, u64 run, u64 middle, u64 inner, u64 s0, u64 s1,
                                        u64 s2, u32 gather) {
    FOR_EACH(i, bytes) {
        const u64 number = i / run;
        u8 *at = apart + number / (middle * inner) * s0 + number / inner % middle * s1 + number % inner * s2 + i % run;
        if (gather)
            packed[i] = *at;
        else
            *at = packed[i];
    }
}

// The canary: a known function of the index, checked by the harness before any arm is loaded.
extern "C" __global__ void qualify_canary(u32 *out, u32 count) {
    FOR_EACH(i, count) out[i] = (u32)mix(7, i);
}
