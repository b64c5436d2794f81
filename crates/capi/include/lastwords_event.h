/*
 * lastwords: events and markers from C and C++. Included by lastwords.h; needs GCC or Clang.
 *
 *     LW_EVENT("disk", "read", lw_u64(sector), lw_u32(bytes, n * 512u), lw_str(path));
 *     LW_EVENT_AT(LW_LEVEL_ERROR, "disk", "failed", lw_i32(code), lw_x32(status));
 *     LW_MARK("prev {} next {}", lw_u32(prev), lw_u32(next));
 *
 * A field is TYPE(name), for a variable of that name, or TYPE(name, value):
 *
 *     lw_u8 lw_u16 lw_u32 lw_u64       unsigned
 *     lw_i8 lw_i16 lw_i32 lw_i64       signed
 *     lw_x8 lw_x16 lw_x32 lw_x64       unsigned, shown in base 16
 *     lw_ptr                           an address
 *     lw_f32 lw_f64 lw_bool
 *     lw_str                           text up to a NUL; a null pointer is recorded as "(null)"
 *     lw_text(name, text, size)        text that ends with a NUL or after size bytes, a constant; takes size bytes
 *     lw_bytes(name, data, count)      bytes, shown in base 16
 *     lw_u16s lw_u32s lw_u64s lw_i8s lw_i16s lw_i32s lw_i64s lw_f32s lw_f64s lw_bools (name, data, count)
 *     lw_u8a lw_u16a lw_u32a lw_u64a lw_i8a lw_i16a lw_i32a lw_i64a lw_f32a lw_f64a lw_boola (name, data, count)
 *                                      elements whose count is a constant, and not recorded each time
 *     lw_enum(name, value, labels)     a value of an enumeration, shown by its label: an int; or lw_enum_u8 lw_enum_u16
 *                                      lw_enum_u32 lw_enum_u64 lw_enum_i8 lw_enum_i16 lw_enum_i32 lw_enum_i64
 *
 *     static const struct lw_label states[] = { { IDLE, "idle" }, { BUSY, "busy" } };
 *     LW_EVENT("disk", "state", lw_enum(state, disk->state, states));
 *
 *     if (LW_EVENT_ENABLED("disk", "queue"))
 *         LW_EVENT("disk", "queue", lw_u32(length, count_queue()));
 *
 * Up to 16 fields. Values are evaluated only when the event is recorded, once. A disabled event is one load and one
 * branch. Recording neither allocates nor locks nor calls the system, but for the first time that a callsite is reached.
 */
#ifndef LASTWORDS_EVENT_H
#define LASTWORDS_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The static data of a callsite that was not reached yet. */
#define LW_P_NO_IDS 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu
#define LW_P_CALLSITE \
    { (uint64_t)1 << 32, 0, 0, 0, { LW_P_NO_IDS, LW_P_NO_IDS, LW_P_NO_IDS, LW_P_NO_IDS }, 0, 0, 0, 0 }

/* Payloads up to this many bytes are put together in words. */
#define LW_P_WORDS 32

/* A payload in the making: whole words, so that the library reads what was written in one piece. */
struct lw_p_writer {
    uint64_t words[LW_P_WORDS];
    uint64_t word;
    size_t index;
    unsigned used;
};

static inline void lw_p_put(struct lw_p_writer *w, uint64_t value, unsigned size)
{
    unsigned total = w->used + size;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value <<= 64 - 8 * size;
    w->word |= value >> (8 * w->used);
#else
    w->word |= value << (8 * w->used);
#endif
    if (total < 8) {
        w->used = total;
        return;
    }
    w->words[w->index++] = w->word;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w->word = (value << 1) << (63 - 8 * w->used);
#else
    w->word = (value >> 1) >> (63 - 8 * w->used);
#endif
    w->used = total - 8;
}

static inline void lw_p_put_memory(struct lw_p_writer *w, const void *data, size_t size)
{
    const unsigned char *at = (const unsigned char *)data;
    uint64_t value;
    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&value, at, 8);
        lw_p_put(w, value, 8);
    }
    for (; size > 0; size--, at++)
        lw_p_put(w, *at, 1);
}

static inline uint64_t lw_p_bits32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline uint64_t lw_p_bits64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

/* A count that does not fit is the largest one, so that the event is too large, and counted as discarded. */
static inline uint32_t lw_p_count(size_t count)
{
    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

static inline const char *lw_p_text(const char *text)
{
    return text ? text : "(null)";
}

static inline void lw_p_pad(char *to, const char *text, size_t size)
{
    size_t i;
    for (i = 0; i < size && text[i]; i++)
        to[i] = text[i];
    memset(to + i, 0, size - i);
}

#ifdef __cplusplus
}
#endif

/* One macro call for each of 1 to 17 arguments, with its number. */
#define LW_P_CAT(a, b) LW_P_CAT_(a, b)
#define LW_P_CAT_(a, b) a##b
#define LW_P_NTH(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, n, ...) n
#define LW_P_COUNT(...) LW_P_NTH(__VA_ARGS__, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define LW_P_EACH(op, ...) LW_P_CAT(LW_P_EACH_, LW_P_COUNT(__VA_ARGS__))(op, __VA_ARGS__)
#define LW_P_EACH_1(op, f) LW_P_ONE(op, 1, f)
#define LW_P_EACH_2(op, f, ...) LW_P_ONE(op, 2, f) LW_P_EACH_1(op, __VA_ARGS__)
#define LW_P_EACH_3(op, f, ...) LW_P_ONE(op, 3, f) LW_P_EACH_2(op, __VA_ARGS__)
#define LW_P_EACH_4(op, f, ...) LW_P_ONE(op, 4, f) LW_P_EACH_3(op, __VA_ARGS__)
#define LW_P_EACH_5(op, f, ...) LW_P_ONE(op, 5, f) LW_P_EACH_4(op, __VA_ARGS__)
#define LW_P_EACH_6(op, f, ...) LW_P_ONE(op, 6, f) LW_P_EACH_5(op, __VA_ARGS__)
#define LW_P_EACH_7(op, f, ...) LW_P_ONE(op, 7, f) LW_P_EACH_6(op, __VA_ARGS__)
#define LW_P_EACH_8(op, f, ...) LW_P_ONE(op, 8, f) LW_P_EACH_7(op, __VA_ARGS__)
#define LW_P_EACH_9(op, f, ...) LW_P_ONE(op, 9, f) LW_P_EACH_8(op, __VA_ARGS__)
#define LW_P_EACH_10(op, f, ...) LW_P_ONE(op, 10, f) LW_P_EACH_9(op, __VA_ARGS__)
#define LW_P_EACH_11(op, f, ...) LW_P_ONE(op, 11, f) LW_P_EACH_10(op, __VA_ARGS__)
#define LW_P_EACH_12(op, f, ...) LW_P_ONE(op, 12, f) LW_P_EACH_11(op, __VA_ARGS__)
#define LW_P_EACH_13(op, f, ...) LW_P_ONE(op, 13, f) LW_P_EACH_12(op, __VA_ARGS__)
#define LW_P_EACH_14(op, f, ...) LW_P_ONE(op, 14, f) LW_P_EACH_13(op, __VA_ARGS__)
#define LW_P_EACH_15(op, f, ...) LW_P_ONE(op, 15, f) LW_P_EACH_14(op, __VA_ARGS__)
#define LW_P_EACH_16(op, f, ...) LW_P_ONE(op, 16, f) LW_P_EACH_15(op, __VA_ARGS__)
#define LW_P_EACH_17(op, f, ...) LW_P_ONE(op, 17, f) LW_P_EACH_16(op, __VA_ARGS__)

/* A field is spelled out as a kind and its facts; then `op` of that kind is applied. */
#define LW_P_ONE(op, i, f) LW_P_ONE_SPELLED(op, i, LW_P_AS_##f)
#define LW_P_ONE_SPELLED(op, i, ...) LW_P_ONE_KIND(op, i, __VA_ARGS__)
#define LW_P_ONE_KIND(op, i, kind, ...) op##_##kind(i, __VA_ARGS__)

/* Name and value of TYPE(name) and TYPE(name, value). */
#define LW_P_NAME(...) LW_P_NAME_(__VA_ARGS__, 0)
#define LW_P_NAME_(name, ...) #name
#define LW_P_VALUE(...) LW_P_PICK(__VA_ARGS__, LW_P_VALUE_2, LW_P_VALUE_1, 0)(__VA_ARGS__)
#define LW_P_PICK(a1, a2, pick, ...) pick
#define LW_P_VALUE_1(name) (name)
#define LW_P_VALUE_2(name, value) (value)

/* Numbers of types: those of lastwords_abi::registry::field. */
#define LW_P_UNSIGNED 1
#define LW_P_SIGNED 2
#define LW_P_FLOAT 3
#define LW_P_BOOL 4
#define LW_P_STRING 5
#define LW_P_SEQUENCE 6
#define LW_P_ARRAY 7
#define LW_P_ENUM 8
#define LW_P_TEXT 9
#define LW_P_BYTES 10

/* A type, as in struct lw_field_desc: its number, bytes and base of a number, type of elements, count, labels. */
#define LW_P_NUMBER(type, bytes, base) (type, bytes, base, 0, 0, 0)
#define LW_P_ELEMENTS(type, count, element, bytes, base) (type, bytes, base, element, count, 0)
#define LW_P_LABELED(element, bytes, labels) \
    (LW_P_ENUM, bytes, 10, element, (uint32_t)(sizeof(labels) / sizeof((labels)[0])), labels)
#define LW_P_BARE(...) __VA_ARGS__

/* lw_p_scalar: type, bytes, what it is stored as, how the value becomes that, name, value. */
#define LW_P_SCALAR(type, bytes, base, store, convert, ...) \
    lw_p_scalar, LW_P_NUMBER(type, bytes, base), bytes, store, convert, LW_P_NAME(__VA_ARGS__), LW_P_VALUE(__VA_ARGS__)
#define LW_P_INTEGER(type, bits, base, ...) \
    LW_P_SCALAR(type, bits / 8, base, uint##bits##_t, (uint##bits##_t), __VA_ARGS__)
#define LW_P_AS_lw_u8(...) LW_P_INTEGER(LW_P_UNSIGNED, 8, 10, __VA_ARGS__)
#define LW_P_AS_lw_u16(...) LW_P_INTEGER(LW_P_UNSIGNED, 16, 10, __VA_ARGS__)
#define LW_P_AS_lw_u32(...) LW_P_INTEGER(LW_P_UNSIGNED, 32, 10, __VA_ARGS__)
#define LW_P_AS_lw_u64(...) LW_P_INTEGER(LW_P_UNSIGNED, 64, 10, __VA_ARGS__)
#define LW_P_AS_lw_i8(...) LW_P_INTEGER(LW_P_SIGNED, 8, 10, __VA_ARGS__)
#define LW_P_AS_lw_i16(...) LW_P_INTEGER(LW_P_SIGNED, 16, 10, __VA_ARGS__)
#define LW_P_AS_lw_i32(...) LW_P_INTEGER(LW_P_SIGNED, 32, 10, __VA_ARGS__)
#define LW_P_AS_lw_i64(...) LW_P_INTEGER(LW_P_SIGNED, 64, 10, __VA_ARGS__)
#define LW_P_AS_lw_x8(...) LW_P_INTEGER(LW_P_UNSIGNED, 8, 16, __VA_ARGS__)
#define LW_P_AS_lw_x16(...) LW_P_INTEGER(LW_P_UNSIGNED, 16, 16, __VA_ARGS__)
#define LW_P_AS_lw_x32(...) LW_P_INTEGER(LW_P_UNSIGNED, 32, 16, __VA_ARGS__)
#define LW_P_AS_lw_x64(...) LW_P_INTEGER(LW_P_UNSIGNED, 64, 16, __VA_ARGS__)
#define LW_P_AS_lw_ptr(...) LW_P_SCALAR(LW_P_UNSIGNED, 8, 16, uint64_t, (uint64_t)(uintptr_t), __VA_ARGS__)
#define LW_P_AS_lw_bool(...) LW_P_SCALAR(LW_P_BOOL, 1, 0, uint8_t, !!, __VA_ARGS__)
#define LW_P_AS_lw_f32(...) LW_P_SCALAR(LW_P_FLOAT, 4, 0, uint32_t, (uint32_t)lw_p_bits32, __VA_ARGS__)
#define LW_P_AS_lw_f64(...) LW_P_SCALAR(LW_P_FLOAT, 8, 0, uint64_t, lw_p_bits64, __VA_ARGS__)
#define LW_P_ENUMERATION(type, bits, name, value, labels) \
    lw_p_scalar, LW_P_LABELED(type, bits / 8, labels), bits / 8, uint##bits##_t, (uint##bits##_t), #name, (value)
#define LW_P_AS_lw_enum(name, value, labels) LW_P_ENUMERATION(LW_P_SIGNED, 32, name, value, labels)
#define LW_P_AS_lw_enum_u8(name, value, labels) LW_P_ENUMERATION(LW_P_UNSIGNED, 8, name, value, labels)
#define LW_P_AS_lw_enum_u16(name, value, labels) LW_P_ENUMERATION(LW_P_UNSIGNED, 16, name, value, labels)
#define LW_P_AS_lw_enum_u32(name, value, labels) LW_P_ENUMERATION(LW_P_UNSIGNED, 32, name, value, labels)
#define LW_P_AS_lw_enum_u64(name, value, labels) LW_P_ENUMERATION(LW_P_UNSIGNED, 64, name, value, labels)
#define LW_P_AS_lw_enum_i8(name, value, labels) LW_P_ENUMERATION(LW_P_SIGNED, 8, name, value, labels)
#define LW_P_AS_lw_enum_i16(name, value, labels) LW_P_ENUMERATION(LW_P_SIGNED, 16, name, value, labels)
#define LW_P_AS_lw_enum_i32(name, value, labels) LW_P_ENUMERATION(LW_P_SIGNED, 32, name, value, labels)
#define LW_P_AS_lw_enum_i64(name, value, labels) LW_P_ENUMERATION(LW_P_SIGNED, 64, name, value, labels)
/* lw_p_string: type, name, value. */
#define LW_P_AS_lw_str(...) lw_p_string, LW_P_NUMBER(LW_P_STRING, 0, 0), LW_P_NAME(__VA_ARGS__), LW_P_VALUE(__VA_ARGS__)
/* lw_p_many: type, bytes of an element, its C type, name, data, count. */
#define LW_P_AS_lw_bytes(name, data, count) lw_p_many, LW_P_NUMBER(LW_P_BYTES, 1, 0), 1, void, #name, (data), (count)
#define LW_P_SLICE(element, bytes, base, c, name, data, count) \
    lw_p_many, LW_P_ELEMENTS(LW_P_SEQUENCE, 0, element, bytes, base), bytes, c, #name, (data), (count)
#define LW_P_AS_lw_u16s(name, data, count) LW_P_SLICE(LW_P_UNSIGNED, 2, 10, uint16_t, name, data, count)
#define LW_P_AS_lw_u32s(name, data, count) LW_P_SLICE(LW_P_UNSIGNED, 4, 10, uint32_t, name, data, count)
#define LW_P_AS_lw_u64s(name, data, count) LW_P_SLICE(LW_P_UNSIGNED, 8, 10, uint64_t, name, data, count)
#define LW_P_AS_lw_i8s(name, data, count) LW_P_SLICE(LW_P_SIGNED, 1, 10, int8_t, name, data, count)
#define LW_P_AS_lw_i16s(name, data, count) LW_P_SLICE(LW_P_SIGNED, 2, 10, int16_t, name, data, count)
#define LW_P_AS_lw_i32s(name, data, count) LW_P_SLICE(LW_P_SIGNED, 4, 10, int32_t, name, data, count)
#define LW_P_AS_lw_i64s(name, data, count) LW_P_SLICE(LW_P_SIGNED, 8, 10, int64_t, name, data, count)
#define LW_P_AS_lw_f32s(name, data, count) LW_P_SLICE(LW_P_FLOAT, 4, 0, float, name, data, count)
#define LW_P_AS_lw_f64s(name, data, count) LW_P_SLICE(LW_P_FLOAT, 8, 0, double, name, data, count)
#define LW_P_AS_lw_bools(name, data, count) LW_P_SLICE(LW_P_BOOL, 1, 0, bool, name, data, count)
/* lw_p_array: type, bytes of all, how the data are had, C type of an element, name, data. */
#define LW_P_ALL_OF(element, bytes, base, c, name, data, count) \
    lw_p_array, LW_P_ELEMENTS(LW_P_ARRAY, count, element, bytes, base), (bytes) * (count), LW_P_REFER, c, #name, (data)
#define LW_P_AS_lw_u8a(name, data, count) LW_P_ALL_OF(LW_P_UNSIGNED, 1, 10, uint8_t, name, data, count)
#define LW_P_AS_lw_u16a(name, data, count) LW_P_ALL_OF(LW_P_UNSIGNED, 2, 10, uint16_t, name, data, count)
#define LW_P_AS_lw_u32a(name, data, count) LW_P_ALL_OF(LW_P_UNSIGNED, 4, 10, uint32_t, name, data, count)
#define LW_P_AS_lw_u64a(name, data, count) LW_P_ALL_OF(LW_P_UNSIGNED, 8, 10, uint64_t, name, data, count)
#define LW_P_AS_lw_i8a(name, data, count) LW_P_ALL_OF(LW_P_SIGNED, 1, 10, int8_t, name, data, count)
#define LW_P_AS_lw_i16a(name, data, count) LW_P_ALL_OF(LW_P_SIGNED, 2, 10, int16_t, name, data, count)
#define LW_P_AS_lw_i32a(name, data, count) LW_P_ALL_OF(LW_P_SIGNED, 4, 10, int32_t, name, data, count)
#define LW_P_AS_lw_i64a(name, data, count) LW_P_ALL_OF(LW_P_SIGNED, 8, 10, int64_t, name, data, count)
#define LW_P_AS_lw_f32a(name, data, count) LW_P_ALL_OF(LW_P_FLOAT, 4, 0, float, name, data, count)
#define LW_P_AS_lw_f64a(name, data, count) LW_P_ALL_OF(LW_P_FLOAT, 8, 0, double, name, data, count)
#define LW_P_AS_lw_boola(name, data, count) LW_P_ALL_OF(LW_P_BOOL, 1, 0, bool, name, data, count)
#define LW_P_AS_lw_text(name, text, size) \
    lw_p_array, LW_P_ELEMENTS(LW_P_TEXT, size, 0, 0, 0), (size), LW_P_PADDED, char, #name, (text)
#define LW_P_AS_lw_p_end() lw_p_end, 0

/* Descriptions of the fields; the last is empty. */
#define LW_P_DESC_lw_p_scalar(i, type, bytes, store, convert, name, value) { name, LW_P_BARE type },
#define LW_P_DESC_lw_p_string(i, type, name, value) { name, LW_P_BARE type },
#define LW_P_DESC_lw_p_many(i, type, bytes, c, name, data, count) { name, LW_P_BARE type },
#define LW_P_DESC_lw_p_array(i, type, size, have, c, name, data) { name, LW_P_BARE type },
#define LW_P_DESC_lw_p_end(i, zero) { 0, 0, 0, 0, 0, 0, 0 }

/* The values, each evaluated once; the last text is the tail. */
#define LW_P_LOCAL_lw_p_scalar(i, type, bytes, store, convert, name, value) \
    const store lw_p_v##i = (store)(convert(value));
#define LW_P_LOCAL_lw_p_string(i, type, name, value) \
    const char *const lw_p_v##i = lw_p_text(value); \
    const size_t lw_p_n##i = strlen(lw_p_v##i) + 1; \
    lw_p_tail = lw_p_v##i;
#define LW_P_LOCAL_lw_p_many(i, type, bytes, c, name, data, count) \
    const c *const lw_p_v##i = data; \
    const uint32_t lw_p_c##i = lw_p_count((size_t)(count)); \
    const size_t lw_p_n##i = (size_t)lw_p_c##i * bytes;
#define LW_P_LOCAL_lw_p_array(i, type, size, have, c, name, data) have(i, size, c, data)
#define LW_P_LOCAL_lw_p_end(i, zero)

#define LW_P_REFER(i, size, c, data) const c *const lw_p_v##i = data;
#define LW_P_PADDED(i, size, c, data) \
    c lw_p_v##i[size]; \
    lw_p_pad(lw_p_v##i, lw_p_text(data), size);

/* The payload's bytes. */
#define LW_P_SIZE_lw_p_scalar(i, type, bytes, store, convert, name, value) + sizeof(lw_p_v##i)
#define LW_P_SIZE_lw_p_string(i, type, name, value) + lw_p_n##i
#define LW_P_SIZE_lw_p_many(i, type, bytes, c, name, data, count) + 4 + lw_p_n##i
#define LW_P_SIZE_lw_p_array(i, type, size, have, c, name, data) + size
#define LW_P_SIZE_lw_p_end(i, zero)

/* Bytes of the values before a text that is the last: more than two words have where one of them has no fixed size. */
#define LW_P_TOO_LONG 17
#define LW_P_FIXED_lw_p_scalar(i, type, bytes, store, convert, name, value) + bytes
#define LW_P_FIXED_lw_p_string(i, type, name, value) + (i == 2 ? 0 : LW_P_TOO_LONG)
#define LW_P_FIXED_lw_p_many(i, type, bytes, c, name, data, count) + LW_P_TOO_LONG
#define LW_P_FIXED_lw_p_array(i, type, size, have, c, name, data) + size
#define LW_P_FIXED_lw_p_end(i, zero)

/* The bytes in words, without the tail where one is recorded apart. */
#define LW_P_PUT_lw_p_scalar(i, type, bytes, store, convert, name, value) lw_p_put(&lw_p_w, lw_p_v##i, bytes);
#define LW_P_PUT_lw_p_string(i, type, name, value) lw_p_put_memory(&lw_p_w, lw_p_v##i, lw_p_apart ? 0 : lw_p_n##i);
#define LW_P_PUT_lw_p_many(i, type, bytes, c, name, data, count) \
    lw_p_put(&lw_p_w, lw_p_c##i, 4); \
    lw_p_put_memory(&lw_p_w, lw_p_v##i, lw_p_n##i);
#define LW_P_PUT_lw_p_array(i, type, size, have, c, name, data) lw_p_put_memory(&lw_p_w, lw_p_v##i, size);
#define LW_P_PUT_lw_p_end(i, zero)

#define LW_P_PART_lw_p_scalar(i, type, bytes, store, convert, name, value) { &lw_p_v##i, bytes },
#define LW_P_PART_lw_p_string(i, type, name, value) { lw_p_v##i, lw_p_n##i },
#define LW_P_PART_lw_p_many(i, type, bytes, c, name, data, count) { &lw_p_c##i, 4 }, { lw_p_v##i, lw_p_n##i },
#define LW_P_PART_lw_p_array(i, type, size, have, c, name, data) { lw_p_v##i, size },
#define LW_P_PART_lw_p_end(i, zero) { 0, 0 }

#define LW_P_EVENT(level, provider, event, format, ...) \
    do { \
        static const struct lw_field_desc lw_p_fields[] = { LW_P_EACH(LW_P_DESC, __VA_ARGS__) }; \
        static const struct lw_event_desc lw_p_event = { \
            provider, event, format, __FILE__, __LINE__, level, sizeof(lw_p_fields) / sizeof(lw_p_fields[0]) - 1, lw_p_fields \
        }; \
        static struct lw_callsite lw_p_site = LW_P_CALLSITE; \
        if (__builtin_expect(__atomic_load_n(&lw_p_site.enabled, __ATOMIC_ACQUIRE) != 0, 0)) { \
            const char *lw_p_tail = 0; \
            LW_P_EACH(LW_P_LOCAL, __VA_ARGS__) \
            const size_t lw_p_head = 0 LW_P_EACH(LW_P_FIXED, __VA_ARGS__); \
            const size_t lw_p_size = 0 LW_P_EACH(LW_P_SIZE, __VA_ARGS__); \
            const bool lw_p_apart = lw_p_tail && lw_p_head < LW_P_TOO_LONG; \
            if (lw_p_apart || lw_p_size <= 8 * LW_P_WORDS) { \
                struct lw_p_writer lw_p_w; \
                lw_p_w.words[0] = lw_p_w.words[1] = lw_p_w.words[2] = lw_p_w.word = 0; \
                lw_p_w.index = lw_p_w.used = 0; \
                LW_P_EACH(LW_P_PUT, __VA_ARGS__) \
                if (lw_p_w.used != 0) \
                    lw_p_w.words[lw_p_w.index] = lw_p_w.word; \
                if (lw_p_apart) \
                    lw_record_text(&lw_p_site, &lw_p_event, lw_p_head, lw_p_w.words[0], lw_p_w.words[1], lw_p_tail); \
                else if (lw_p_size <= 24) \
                    lw_record_short(&lw_p_site, &lw_p_event, lw_p_size, lw_p_w.words[0], lw_p_w.words[1], lw_p_w.words[2]); \
                else { \
                    const struct lw_part lw_p_whole = { lw_p_w.words, lw_p_size }; \
                    lw_record_parts(&lw_p_site, &lw_p_event, &lw_p_whole, 1); \
                } \
            } else { \
                const struct lw_part lw_p_parts[] = { LW_P_EACH(LW_P_PART, __VA_ARGS__) }; \
                lw_record_parts(&lw_p_site, &lw_p_event, lw_p_parts, sizeof(lw_p_parts) / sizeof(lw_p_parts[0])); \
            } \
        } \
    } while (0)

/* Takes the names and at least one more argument off what the user wrote. */
#define LW_P_AT(level, provider, event, ...) LW_P_EVENT(level, provider, event, "", __VA_ARGS__)
#define LW_P_MARKER(format, ...) LW_P_EVENT(LW_LEVEL_INFO, "marker", format, format, __VA_ARGS__)

/* LW_EVENT(provider, name, fields...): an event of level info. Provider and name are string literals. */
#define LW_EVENT(...) LW_P_AT(LW_LEVEL_INFO, __VA_ARGS__, lw_p_end())
/* LW_EVENT_AT(level, provider, name, fields...) */
#define LW_EVENT_AT(...) LW_P_AT(__VA_ARGS__, lw_p_end())
/* LW_EVENT_ENABLED(provider, name), LW_EVENT_ENABLED_AT(level, provider, name): whether such an event is recorded now; for work
 * that only the event needs. One load and one branch if it is not. */
#define LW_EVENT_ENABLED(provider, event) LW_EVENT_ENABLED_AT(LW_LEVEL_INFO, provider, event)
#define LW_EVENT_ENABLED_AT(level, provider, event) \
    __extension__({ \
        static const struct lw_event_desc lw_p_event = { provider, event, "", __FILE__, __LINE__, level, 0, 0 }; \
        static struct lw_callsite lw_p_site = LW_P_CALLSITE; \
        __atomic_load_n(&lw_p_site.enabled, __ATOMIC_ACQUIRE) != 0 && lw_event_enabled(&lw_p_site, &lw_p_event); \
    })
/* LW_USER_CONTEXT(field, read, data): initializes a struct lw_context. The field's type has a fixed size, and where a value
 * stands it is not looked at: lw_u32(name), lw_text(name, 0, size), lw_enum(name, 0, labels). */
#define LW_USER_CONTEXT(field, read, data) { LW_P_ONE(LW_P_DESC, 1, field) read, data }
/* LW_MARK(format, fields...): an event described by its format string, with `{}` for each field in order. */
#define LW_MARK(...) LW_P_MARKER(__VA_ARGS__, lw_p_end())

#endif
