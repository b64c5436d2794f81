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
#define LW__NO_IDS 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu, 0xffffu
#define LW__CALLSITE \
    { (uint64_t)1 << 32, 0, 0, { LW__NO_IDS, LW__NO_IDS, LW__NO_IDS, LW__NO_IDS }, 0, 0, 0 }

/* Payloads up to this many bytes are put together in words. */
#define LW__WORDS 32

/* A payload in the making: whole words, so that the library reads what was written in one piece. */
struct lw__writer {
    uint64_t words[LW__WORDS];
    uint64_t word;
    size_t index;
    unsigned used;
};

static inline void lw__put(struct lw__writer *w, uint64_t value, unsigned size)
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

static inline void lw__put_memory(struct lw__writer *w, const void *data, size_t size)
{
    const unsigned char *at = (const unsigned char *)data;
    uint64_t value;
    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&value, at, 8);
        lw__put(w, value, 8);
    }
    for (; size > 0; size--, at++)
        lw__put(w, *at, 1);
}

static inline uint64_t lw__bits32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline uint64_t lw__bits64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static inline const char *lw__text(const char *text)
{
    return text ? text : "(null)";
}

static inline void lw__pad(char *to, const char *text, size_t size)
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
#define LW__CAT(a, b) LW__CAT_(a, b)
#define LW__CAT_(a, b) a##b
#define LW__NTH(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, n, ...) n
#define LW__COUNT(...) LW__NTH(__VA_ARGS__, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define LW__EACH(op, ...) LW__CAT(LW__EACH_, LW__COUNT(__VA_ARGS__))(op, __VA_ARGS__)
#define LW__EACH_1(op, f) LW__ONE(op, 1, f)
#define LW__EACH_2(op, f, ...) LW__ONE(op, 2, f) LW__EACH_1(op, __VA_ARGS__)
#define LW__EACH_3(op, f, ...) LW__ONE(op, 3, f) LW__EACH_2(op, __VA_ARGS__)
#define LW__EACH_4(op, f, ...) LW__ONE(op, 4, f) LW__EACH_3(op, __VA_ARGS__)
#define LW__EACH_5(op, f, ...) LW__ONE(op, 5, f) LW__EACH_4(op, __VA_ARGS__)
#define LW__EACH_6(op, f, ...) LW__ONE(op, 6, f) LW__EACH_5(op, __VA_ARGS__)
#define LW__EACH_7(op, f, ...) LW__ONE(op, 7, f) LW__EACH_6(op, __VA_ARGS__)
#define LW__EACH_8(op, f, ...) LW__ONE(op, 8, f) LW__EACH_7(op, __VA_ARGS__)
#define LW__EACH_9(op, f, ...) LW__ONE(op, 9, f) LW__EACH_8(op, __VA_ARGS__)
#define LW__EACH_10(op, f, ...) LW__ONE(op, 10, f) LW__EACH_9(op, __VA_ARGS__)
#define LW__EACH_11(op, f, ...) LW__ONE(op, 11, f) LW__EACH_10(op, __VA_ARGS__)
#define LW__EACH_12(op, f, ...) LW__ONE(op, 12, f) LW__EACH_11(op, __VA_ARGS__)
#define LW__EACH_13(op, f, ...) LW__ONE(op, 13, f) LW__EACH_12(op, __VA_ARGS__)
#define LW__EACH_14(op, f, ...) LW__ONE(op, 14, f) LW__EACH_13(op, __VA_ARGS__)
#define LW__EACH_15(op, f, ...) LW__ONE(op, 15, f) LW__EACH_14(op, __VA_ARGS__)
#define LW__EACH_16(op, f, ...) LW__ONE(op, 16, f) LW__EACH_15(op, __VA_ARGS__)
#define LW__EACH_17(op, f, ...) LW__ONE(op, 17, f) LW__EACH_16(op, __VA_ARGS__)

/* A field is spelled out as a kind and its facts; then `op` of that kind is applied. */
#define LW__ONE(op, i, f) LW__ONE_(op, i, LW__AS_##f)
#define LW__ONE_(op, i, ...) LW__ONE__(op, i, __VA_ARGS__)
#define LW__ONE__(op, i, kind, ...) op##_##kind(i, __VA_ARGS__)

/* Name and value of TYPE(name) and TYPE(name, value). */
#define LW__NAME(...) LW__NAME_(__VA_ARGS__, 0)
#define LW__NAME_(name, ...) #name
#define LW__VALUE(...) LW__PICK(__VA_ARGS__, LW__VALUE_2, LW__VALUE_1, 0)(__VA_ARGS__)
#define LW__PICK(_1, _2, pick, ...) pick
#define LW__VALUE_1(name) (name)
#define LW__VALUE_2(name, value) (value)

/* Numbers of types: those of lastwords_abi::registry::field. */
#define LW__UNSIGNED 1
#define LW__SIGNED 2
#define LW__FLOAT 3
#define LW__BOOL 4
#define LW__STRING 5
#define LW__SEQUENCE 6
#define LW__ARRAY 7
#define LW__ENUM 8
#define LW__TEXT 9
#define LW__BYTES 10

/* A type, as in struct lw_field_desc: its number, bytes and base of a number, type of elements, count, labels. */
#define LW__NUMBER(type, bytes, base) (type, bytes, base, 0, 0, 0)
#define LW__ELEMENTS(type, count, element, bytes, base) (type, bytes, base, element, count, 0)
#define LW__LABELED(element, bytes, labels) \
    (LW__ENUM, bytes, 10, element, (uint32_t)(sizeof(labels) / sizeof((labels)[0])), labels)
#define LW__BARE(...) __VA_ARGS__

/* lw__scalar: type, bytes, what it is stored as, how the value becomes that, name, value. */
#define LW__INTEGER(type, bits, base, ...) \
    lw__scalar, LW__NUMBER(type, bits / 8, base), bits / 8, uint##bits##_t, (uint##bits##_t), LW__NAME(__VA_ARGS__), \
        LW__VALUE(__VA_ARGS__)
#define LW__AS_lw_u8(...) LW__INTEGER(LW__UNSIGNED, 8, 10, __VA_ARGS__)
#define LW__AS_lw_u16(...) LW__INTEGER(LW__UNSIGNED, 16, 10, __VA_ARGS__)
#define LW__AS_lw_u32(...) LW__INTEGER(LW__UNSIGNED, 32, 10, __VA_ARGS__)
#define LW__AS_lw_u64(...) LW__INTEGER(LW__UNSIGNED, 64, 10, __VA_ARGS__)
#define LW__AS_lw_i8(...) LW__INTEGER(LW__SIGNED, 8, 10, __VA_ARGS__)
#define LW__AS_lw_i16(...) LW__INTEGER(LW__SIGNED, 16, 10, __VA_ARGS__)
#define LW__AS_lw_i32(...) LW__INTEGER(LW__SIGNED, 32, 10, __VA_ARGS__)
#define LW__AS_lw_i64(...) LW__INTEGER(LW__SIGNED, 64, 10, __VA_ARGS__)
#define LW__AS_lw_x8(...) LW__INTEGER(LW__UNSIGNED, 8, 16, __VA_ARGS__)
#define LW__AS_lw_x16(...) LW__INTEGER(LW__UNSIGNED, 16, 16, __VA_ARGS__)
#define LW__AS_lw_x32(...) LW__INTEGER(LW__UNSIGNED, 32, 16, __VA_ARGS__)
#define LW__AS_lw_x64(...) LW__INTEGER(LW__UNSIGNED, 64, 16, __VA_ARGS__)
#define LW__AS_lw_ptr(...) \
    lw__scalar, LW__NUMBER(LW__UNSIGNED, 8, 16), 8, uint64_t, (uint64_t)(uintptr_t), LW__NAME(__VA_ARGS__), \
        LW__VALUE(__VA_ARGS__)
#define LW__AS_lw_bool(...) \
    lw__scalar, LW__NUMBER(LW__BOOL, 1, 0), 1, uint8_t, !!, LW__NAME(__VA_ARGS__), LW__VALUE(__VA_ARGS__)
#define LW__AS_lw_f32(...) \
    lw__scalar, LW__NUMBER(LW__FLOAT, 4, 0), 4, uint32_t, (uint32_t)lw__bits32, LW__NAME(__VA_ARGS__), \
        LW__VALUE(__VA_ARGS__)
#define LW__AS_lw_f64(...) \
    lw__scalar, LW__NUMBER(LW__FLOAT, 8, 0), 8, uint64_t, lw__bits64, LW__NAME(__VA_ARGS__), LW__VALUE(__VA_ARGS__)
#define LW__ENUMERATION(type, bits, name, value, labels) \
    lw__scalar, LW__LABELED(type, bits / 8, labels), bits / 8, uint##bits##_t, (uint##bits##_t), #name, (value)
#define LW__AS_lw_enum(name, value, labels) LW__ENUMERATION(LW__SIGNED, 32, name, value, labels)
#define LW__AS_lw_enum_u8(name, value, labels) LW__ENUMERATION(LW__UNSIGNED, 8, name, value, labels)
#define LW__AS_lw_enum_u16(name, value, labels) LW__ENUMERATION(LW__UNSIGNED, 16, name, value, labels)
#define LW__AS_lw_enum_u32(name, value, labels) LW__ENUMERATION(LW__UNSIGNED, 32, name, value, labels)
#define LW__AS_lw_enum_u64(name, value, labels) LW__ENUMERATION(LW__UNSIGNED, 64, name, value, labels)
#define LW__AS_lw_enum_i8(name, value, labels) LW__ENUMERATION(LW__SIGNED, 8, name, value, labels)
#define LW__AS_lw_enum_i16(name, value, labels) LW__ENUMERATION(LW__SIGNED, 16, name, value, labels)
#define LW__AS_lw_enum_i32(name, value, labels) LW__ENUMERATION(LW__SIGNED, 32, name, value, labels)
#define LW__AS_lw_enum_i64(name, value, labels) LW__ENUMERATION(LW__SIGNED, 64, name, value, labels)
/* lw__string: type, name, value. */
#define LW__AS_lw_str(...) lw__string, LW__NUMBER(LW__STRING, 0, 0), LW__NAME(__VA_ARGS__), LW__VALUE(__VA_ARGS__)
/* lw__many: type, bytes of an element, its C type, name, data, count. */
#define LW__AS_lw_bytes(name, data, count) lw__many, LW__NUMBER(LW__BYTES, 1, 0), 1, void, #name, (data), (count)
#define LW__SLICE(element, bytes, base, c, name, data, count) \
    lw__many, LW__ELEMENTS(LW__SEQUENCE, 0, element, bytes, base), bytes, c, #name, (data), (count)
#define LW__AS_lw_u16s(name, data, count) LW__SLICE(LW__UNSIGNED, 2, 10, uint16_t, name, data, count)
#define LW__AS_lw_u32s(name, data, count) LW__SLICE(LW__UNSIGNED, 4, 10, uint32_t, name, data, count)
#define LW__AS_lw_u64s(name, data, count) LW__SLICE(LW__UNSIGNED, 8, 10, uint64_t, name, data, count)
#define LW__AS_lw_i8s(name, data, count) LW__SLICE(LW__SIGNED, 1, 10, int8_t, name, data, count)
#define LW__AS_lw_i16s(name, data, count) LW__SLICE(LW__SIGNED, 2, 10, int16_t, name, data, count)
#define LW__AS_lw_i32s(name, data, count) LW__SLICE(LW__SIGNED, 4, 10, int32_t, name, data, count)
#define LW__AS_lw_i64s(name, data, count) LW__SLICE(LW__SIGNED, 8, 10, int64_t, name, data, count)
#define LW__AS_lw_f32s(name, data, count) LW__SLICE(LW__FLOAT, 4, 0, float, name, data, count)
#define LW__AS_lw_f64s(name, data, count) LW__SLICE(LW__FLOAT, 8, 0, double, name, data, count)
#define LW__AS_lw_bools(name, data, count) LW__SLICE(LW__BOOL, 1, 0, bool, name, data, count)
/* lw__array: type, bytes of all, how the data are had, C type of an element, name, data. */
#define LW__ALL_OF(element, bytes, base, c, name, data, count) \
    lw__array, LW__ELEMENTS(LW__ARRAY, count, element, bytes, base), (bytes) * (count), LW__REFER, c, #name, (data)
#define LW__AS_lw_u8a(name, data, count) LW__ALL_OF(LW__UNSIGNED, 1, 10, uint8_t, name, data, count)
#define LW__AS_lw_u16a(name, data, count) LW__ALL_OF(LW__UNSIGNED, 2, 10, uint16_t, name, data, count)
#define LW__AS_lw_u32a(name, data, count) LW__ALL_OF(LW__UNSIGNED, 4, 10, uint32_t, name, data, count)
#define LW__AS_lw_u64a(name, data, count) LW__ALL_OF(LW__UNSIGNED, 8, 10, uint64_t, name, data, count)
#define LW__AS_lw_i8a(name, data, count) LW__ALL_OF(LW__SIGNED, 1, 10, int8_t, name, data, count)
#define LW__AS_lw_i16a(name, data, count) LW__ALL_OF(LW__SIGNED, 2, 10, int16_t, name, data, count)
#define LW__AS_lw_i32a(name, data, count) LW__ALL_OF(LW__SIGNED, 4, 10, int32_t, name, data, count)
#define LW__AS_lw_i64a(name, data, count) LW__ALL_OF(LW__SIGNED, 8, 10, int64_t, name, data, count)
#define LW__AS_lw_f32a(name, data, count) LW__ALL_OF(LW__FLOAT, 4, 0, float, name, data, count)
#define LW__AS_lw_f64a(name, data, count) LW__ALL_OF(LW__FLOAT, 8, 0, double, name, data, count)
#define LW__AS_lw_boola(name, data, count) LW__ALL_OF(LW__BOOL, 1, 0, bool, name, data, count)
#define LW__AS_lw_text(name, text, size) \
    lw__array, LW__ELEMENTS(LW__TEXT, size, 0, 0, 0), (size), LW__PADDED, char, #name, (text)
#define LW__AS_lw__end() lw__end, 0

/* Descriptions of the fields; the last is empty. */
#define LW__DESC_lw__scalar(i, type, bytes, store, convert, name, value) { name, LW__BARE type },
#define LW__DESC_lw__string(i, type, name, value) { name, LW__BARE type },
#define LW__DESC_lw__many(i, type, bytes, c, name, data, count) { name, LW__BARE type },
#define LW__DESC_lw__array(i, type, size, have, c, name, data) { name, LW__BARE type },
#define LW__DESC_lw__end(i, zero) { 0, 0, 0, 0, 0, 0, 0 }

/* The values, each evaluated once. */
#define LW__LOCAL_lw__scalar(i, type, bytes, store, convert, name, value) \
    const store lw__v##i = (store)(convert(value));
#define LW__LOCAL_lw__string(i, type, name, value) \
    const char *const lw__v##i = lw__text(value); \
    const size_t lw__n##i = strlen(lw__v##i) + 1;
#define LW__LOCAL_lw__many(i, type, bytes, c, name, data, count) \
    const c *const lw__v##i = data; \
    const uint32_t lw__c##i = (uint32_t)(count); \
    const size_t lw__n##i = (size_t)lw__c##i * bytes;
#define LW__LOCAL_lw__array(i, type, size, have, c, name, data) have(i, size, c, data)
#define LW__LOCAL_lw__end(i, zero)

#define LW__REFER(i, size, c, data) const c *const lw__v##i = data;
#define LW__PADDED(i, size, c, data) \
    c lw__v##i[size]; \
    lw__pad(lw__v##i, lw__text(data), size);

/* The payload's bytes. */
#define LW__SIZE_lw__scalar(i, type, bytes, store, convert, name, value) + sizeof(lw__v##i)
#define LW__SIZE_lw__string(i, type, name, value) + lw__n##i
#define LW__SIZE_lw__many(i, type, bytes, c, name, data, count) + 4 + lw__n##i
#define LW__SIZE_lw__array(i, type, size, have, c, name, data) + size
#define LW__SIZE_lw__end(i, zero)

/* Bytes of the values of fixed sizes; whether there is another value, but for a text that is the last; that text. */
#define LW__FIXED_lw__scalar(i, type, bytes, store, convert, name, value) + bytes
#define LW__FIXED_lw__string(i, type, name, value)
#define LW__FIXED_lw__many(i, type, bytes, c, name, data, count)
#define LW__FIXED_lw__array(i, type, size, have, c, name, data) + size
#define LW__FIXED_lw__end(i, zero)

#define LW__LONG_lw__scalar(i, type, bytes, store, convert, name, value)
#define LW__LONG_lw__string(i, type, name, value) || i != 2
#define LW__LONG_lw__many(i, type, bytes, c, name, data, count) || 1
#define LW__LONG_lw__array(i, type, size, have, c, name, data)
#define LW__LONG_lw__end(i, zero)

#define LW__TAIL_lw__scalar(i, type, bytes, store, convert, name, value)
#define LW__TAIL_lw__string(i, type, name, value) lw__tail = lw__v##i;
#define LW__TAIL_lw__many(i, type, bytes, c, name, data, count)
#define LW__TAIL_lw__array(i, type, size, have, c, name, data)
#define LW__TAIL_lw__end(i, zero)

#define LW__HEAD_lw__scalar(i, type, bytes, store, convert, name, value) lw__put(&lw__w, lw__v##i, bytes);
#define LW__HEAD_lw__string(i, type, name, value)
#define LW__HEAD_lw__many(i, type, bytes, c, name, data, count)
#define LW__HEAD_lw__array(i, type, size, have, c, name, data) lw__put_memory(&lw__w, lw__v##i, size);
#define LW__HEAD_lw__end(i, zero)

#define LW__PUT_lw__scalar(i, type, bytes, store, convert, name, value) lw__put(&lw__w, lw__v##i, bytes);
#define LW__PUT_lw__string(i, type, name, value) lw__put_memory(&lw__w, lw__v##i, lw__n##i);
#define LW__PUT_lw__many(i, type, bytes, c, name, data, count) \
    lw__put(&lw__w, lw__c##i, 4); \
    lw__put_memory(&lw__w, lw__v##i, lw__n##i);
#define LW__PUT_lw__array(i, type, size, have, c, name, data) lw__put_memory(&lw__w, lw__v##i, size);
#define LW__PUT_lw__end(i, zero)

#define LW__PART_lw__scalar(i, type, bytes, store, convert, name, value) { &lw__v##i, bytes },
#define LW__PART_lw__string(i, type, name, value) { lw__v##i, lw__n##i },
#define LW__PART_lw__many(i, type, bytes, c, name, data, count) { &lw__c##i, 4 }, { lw__v##i, lw__n##i },
#define LW__PART_lw__array(i, type, size, have, c, name, data) { lw__v##i, size },
#define LW__PART_lw__end(i, zero) { 0, 0 }

/* The words of `lw__w`, filled by the statements given. */
#define LW__FILL(...) \
    lw__w.words[0] = 0; \
    lw__w.word = 0; \
    lw__w.index = 0; \
    lw__w.used = 0; \
    __VA_ARGS__ \
    if (lw__w.used != 0) \
        lw__w.words[lw__w.index] = lw__w.word;

#define LW__EVENT(level, provider, event, format, ...) \
    do { \
        static const struct lw_field_desc lw__fields[] = { LW__EACH(LW__DESC, __VA_ARGS__) }; \
        static const struct lw_event_desc lw__event = { \
            provider, event, format, __FILE__, __LINE__, level, sizeof(lw__fields) / sizeof(lw__fields[0]) - 1, lw__fields \
        }; \
        static struct lw_callsite lw__site = LW__CALLSITE; \
        if (__builtin_expect(__atomic_load_n(&lw__site.enabled, __ATOMIC_ACQUIRE) != 0, 0)) { \
            LW__EACH(LW__LOCAL, __VA_ARGS__) \
            const char *lw__tail = 0; \
            const size_t lw__head = 0 LW__EACH(LW__FIXED, __VA_ARGS__); \
            const size_t lw__size = 0 LW__EACH(LW__SIZE, __VA_ARGS__); \
            struct lw__writer lw__w; \
            LW__EACH(LW__TAIL, __VA_ARGS__) \
            if (lw__tail && !(0 LW__EACH(LW__LONG, __VA_ARGS__)) && lw__head <= 16) { \
                LW__FILL(LW__EACH(LW__HEAD, __VA_ARGS__)) \
                lw_record_text(&lw__site, &lw__event, lw__w.words, lw__head, lw__tail); \
            } else if (lw__size <= 8 * LW__WORDS) { \
                LW__FILL(LW__EACH(LW__PUT, __VA_ARGS__)) \
                lw_record_words(&lw__site, &lw__event, lw__w.words, lw__size); \
            } else { \
                const struct lw_part lw__parts[] = { LW__EACH(LW__PART, __VA_ARGS__) }; \
                lw_record_parts(&lw__site, &lw__event, lw__parts, sizeof(lw__parts) / sizeof(lw__parts[0])); \
            } \
        } \
    } while (0)

/* Takes the names and at least one more argument off what the user wrote. */
#define LW__AT(level, provider, event, ...) LW__EVENT(level, provider, event, "", __VA_ARGS__)
#define LW__MARKER(format, ...) LW__EVENT(LW_LEVEL_INFO, "marker", format, format, __VA_ARGS__)

/* LW_EVENT(provider, name, fields...): an event of level info. Provider and name are string literals. */
#define LW_EVENT(...) LW__AT(LW_LEVEL_INFO, __VA_ARGS__, lw__end())
/* LW_EVENT_AT(level, provider, name, fields...) */
#define LW_EVENT_AT(...) LW__AT(__VA_ARGS__, lw__end())
/* LW_USER_CONTEXT(field, read, data): initializes a struct lw_context. The field's type has a fixed size, and where a value
 * stands it is not looked at: lw_u32(name), lw_text(name, 0, size), lw_enum(name, 0, labels). */
#define LW_USER_CONTEXT(field, read, data) { LW__ONE(LW__DESC, 1, field) read, data }
/* LW_MARK(format, fields...): an event described by its format string, with `{}` for each field in order. */
#define LW_MARK(...) LW__MARKER(__VA_ARGS__, lw__end())

#endif
