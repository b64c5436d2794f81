/*
 * Events with fields of every type that a field can have besides numbers and texts. Prints the session's folder.
 */
#include <stdio.h>

#include <lastwords.h>

enum state { IDLE, BUSY = 7 };

static const struct lw_label states[] = { { IDLE, "idle" }, { BUSY, "busy" } };
static const struct lw_label codes[] = { { -1, "failed" }, { 0, "done" }, { 127, "most" } };
static const struct lw_label sizes[] = { { 0, "none" }, { 200, "large" }, { -1, "all" } };

/* More labels than the library asks memory for at once. */
#define TEN(n) { n, "a" }, { n + 1, "b" }, { n + 2, "c" }, { n + 3, "d" }, { n + 4, "e" }, \
    { n + 5, "f" }, { n + 6, "g" }, { n + 7, "h" }, { n + 8, "i" }, { n + 9, "j" }
#define HUNDRED(n) TEN(n), TEN(n + 10), TEN(n + 20), TEN(n + 30), TEN(n + 40), \
    TEN(n + 50), TEN(n + 60), TEN(n + 70), TEN(n + 80), TEN(n + 90)
static const struct lw_label many[] = {
    HUNDRED(0), HUNDRED(100), HUNDRED(200), HUNDRED(300), HUNDRED(400), HUNDRED(500), HUNDRED(600), HUNDRED(700),
    HUNDRED(800), HUNDRED(900), HUNDRED(1000), HUNDRED(1100), HUNDRED(1200), HUNDRED(1300), HUNDRED(1400),
    { 2000, "the last" }
};

static void enumerations(void)
{
    enum state state = BUSY;
    int round;

    for (round = 0; round < 2; round++)
        LW_EVENT("f", "state", lw_enum(state, state, states));
    LW_EVENT("f", "enums", lw_enum_u8(u8, 200, sizes), lw_enum_u16(u16, 0, sizes), lw_enum_u32(u32, 200, sizes),
             lw_enum_u64(u64, -1, sizes), lw_enum_i8(i8, -1, codes), lw_enum_i16(i16, 127, codes),
             lw_enum_i32(i32, 0, codes), lw_enum_i64(i64, -1, codes), lw_str(behind, "it"));
    LW_EVENT("f", "unlabeled", lw_enum(state, 5, states));
    LW_EVENT("f", "many", lw_enum_u16(value, 2000, many));
}

static void arrays(void)
{
    const uint8_t u8[3] = { 1, 2, 255 };
    const uint16_t u16[2] = { 3, 65535 };
    const uint32_t u32[2] = { 4, 5 };
    const uint64_t u64[40] = { 6, 7 };
    const int8_t i8[2] = { -1, 8 };
    const int16_t i16[2] = { -2, 9 };
    const int32_t i32[2] = { -3, 10 };
    const int64_t i64[2] = { -4, 11 };
    const float f32[2] = { 0.5f, -1.5f };
    const double f64[2] = { 0.25, -2.5 };
    const bool bools[2] = { true, false };

    LW_EVENT("f", "short", lw_u8a(a, u8, 3), lw_u16a(b, u16, 2));
    LW_EVENT("f", "head", lw_u8a(a, u8, 3), lw_str(text, "behind an array"));
    LW_EVENT("f", "arrays", lw_u32a(c, u32, 2), lw_i8a(d, i8, 2), lw_i16a(e, i16, 2), lw_i32a(f, i32, 2),
             lw_i64a(g, i64, 2), lw_f32a(h, f32, 2), lw_f64a(i, f64, 2), lw_boola(j, bools, 2));
    LW_EVENT("f", "long", lw_u64a(k, u64, 40));
    LW_EVENT("f", "sequences", lw_i8s(a, i8, 2), lw_bools(b, bools, 2), lw_i8s(none, i8, 0));
}

static void texts(void)
{
    const char *none = NULL;

    LW_EVENT("f", "text", lw_text(exact, "abcd", 4), lw_text(cut, "abcdefgh", 4), lw_text(padded, "ab", 8));
    LW_EVENT("f", "short text", lw_u32(n, 1), lw_text(name, "worker", 16));
    LW_EVENT("f", "no text", lw_text(name, none, 16));
}

static const struct lw_label colours[] = { { 1, "gr\xfcn" } };

static void not_utf8(void)
{
    LW_EVENT("f", "stra\xdf" "e", lw_enum(farbe, 1, colours), lw_str(text, "gr\xfcn"));
}

static void sixteen(void)
{
    LW_EVENT("f", "sixteen", lw_u8(a, 1), lw_u8(b, 2), lw_u8(c, 3), lw_u8(d, 4), lw_u8(e, 5), lw_u8(f, 6), lw_u8(g, 7),
             lw_u8(h, 8), lw_u8(i, 9), lw_u8(j, 10), lw_u8(k, 11), lw_u8(l, 12), lw_u8(m, 13), lw_u8(n, 14),
             lw_u8(o, 15), lw_u8(p, 16));
}

int main(void)
{
    struct lw_session *session = lw_session_begin("fields");

    if (!session) {
        fprintf(stderr, "fields: %s\n", lw_error());
        return 1;
    }
    enumerations();
    arrays();
    texts();
    not_utf8();
    sixteen();
    printf("%s\n", lw_session_folder(session));
    lw_session_end(session);
    return 0;
}
