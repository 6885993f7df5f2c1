/* Attention over keys and values in int8. WIDTH, of a row, is given when this is compiled. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 256, LEVELS = 127 };

struct place {
    int64_t length;
    const int8_t *keys, *values;              /* [heads, length, WIDTH] */
    const float *key_scales, *value_scales;   /* [heads, length] */
    const float *mask;                        /* [length], or NULL */
};

/* A softmax that meets its scores block by block: what was found so far is scaled down when a higher one comes. */
static void attend_one(const struct place *place, int64_t head, const float *query, float *found) {
    float scores[BLOCK], sums[WIDTH] = {0}, top = 0, total = 0;
    for (int64_t start = 0; start < place->length; start += BLOCK) {
        int64_t first = head * place->length + start;
        int64_t left = place->length - start, count = left < BLOCK ? left : BLOCK;
        const int8_t *keys = place->keys + first * WIDTH, *values = place->values + first * WIDTH;
        for (int64_t row = 0; row < count; row++) {
            float product = 0;
            for (int i = 0; i < WIDTH; i++) product += query[i] * keys[row * WIDTH + i];
            scores[row] = product * place->key_scales[first + row];
        }
        if (place->mask)
            for (int64_t row = 0; row < count; row++) scores[row] += place->mask[start + row];
        float highest = start ? top : scores[0];
        for (int64_t row = 0; row < count; row++) highest = scores[row] > highest ? scores[row] : highest;
        float kept = start ? expf(top - highest) : 0;
        top = highest;
        total *= kept;
        for (int i = 0; i < WIDTH; i++) sums[i] *= kept;
        for (int64_t row = 0; row < count; row++) total += scores[row] = expf(scores[row] - top);
        for (int64_t row = 0; row < count; row++) {
            float weight = scores[row] * place->value_scales[first + row];
            for (int i = 0; i < WIDTH; i++) sums[i] += weight * values[row * WIDTH + i];
        }
    }
    for (int i = 0; i < WIDTH; i++) found[i] = sums[i] / total;
}

/* queries and found are [rows, heads, positions, WIDTH]; row n of them reads places[n]. */
void attend(int64_t rows, int64_t heads, int64_t positions, const struct place *places, const float *queries,
            float *found, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t unit = 0; unit < rows * heads * positions; unit++)
        attend_one(places + unit / positions / heads, unit / positions % heads, queries + unit * WIDTH,
                   found + unit * WIDTH);
}

/* rows is [count, WIDTH]. As integers, numbers without a sign are in the order of floats, and NaN is above all. */
void quantise(int64_t count, const float *rows, int8_t *numbers, float *scales, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < count; row++) {
        uint32_t bits[WIDTH], top = 0;
        memcpy(bits, rows + row * WIDTH, sizeof bits);
        for (int i = 0; i < WIDTH; i++) top = (bits[i] & 0x7fffffff) > top ? bits[i] & 0x7fffffff : top;
        float largest;
        memcpy(&largest, &top, sizeof largest);
        scales[row] = largest / LEVELS;
        float factor = largest > FLT_MIN * LEVELS ? LEVELS / largest : 0;
        for (int i = 0; i < WIDTH; i++) numbers[row * WIDTH + i] = (int8_t)rintf(rows[row * WIDTH + i] * factor);
    }
}
