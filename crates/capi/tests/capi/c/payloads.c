/*
 * Events of every shape that the macros record each in its own way: numbers of 1 to 24 bytes, and texts of every length
 * behind them. Prints the session's folder. The argument is the contexts.
 */
#include <stdio.h>
#include <stdlib.h>

#include <lastwords.h>

int main(int argc, char **argv)
{
    const char *alphabet = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    struct lw_channel channel = { "main", 65536, 8, 0, 0, 0, 0, 0, NULL, 0, 0 };
    struct lw_builder *builder = lw_builder_new("payloads");
    struct lw_session *session;
    const uint64_t a = 0x1122334455667788u, b = 0x99aabbccddeeff01u, c = 0x123456789abcdef0u;
    int round, len;

    channel.contexts = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : LW_CONTEXT_NONE;
    if (!builder || lw_builder_channel(builder, &channel) != 0 || !(session = lw_builder_start(builder))) {
        fprintf(stderr, "payloads: %s\n", lw_error());
        return 1;
    }
    for (round = 0; round < 2; round++) {
        LW_EVENT("p", "1", lw_u8(a));
        LW_EVENT("p", "4", lw_u32(a));
        LW_EVENT("p", "8", lw_u64(a));
        LW_EVENT("p", "9", lw_u8(a), lw_u64(b));
        LW_EVENT("p", "12", lw_u32(a), lw_u64(b));
        LW_EVENT("p", "13", lw_u32(a), lw_u8(b), lw_u64(c));
        LW_EVENT("p", "16", lw_u64(a), lw_u64(b));
        LW_EVENT("p", "17", lw_u64(a), lw_u64(b), lw_u8(c));
        LW_EVENT("p", "20", lw_u64(a), lw_u64(b), lw_u32(c));
        LW_EVENT("p", "24", lw_u64(a), lw_u64(b), lw_u64(c));
    }
    for (len = 0; len <= 70; len++) {
        const char *text = alphabet + 78 - len;
        LW_EVENT("p", "text", lw_str(text));
        LW_EVENT("p", "1 text", lw_u8(a), lw_str(text));
        LW_EVENT("p", "12 text", lw_u32(a), lw_u64(b), lw_str(text));
        LW_EVENT("p", "16 text", lw_u64(a), lw_u64(b), lw_str(text));
        LW_EVENT("p", "text 8", lw_str(text), lw_u64(a));
        LW_EVENT("p", "texts", lw_str(text), lw_str(text));
    }
    printf("%s\n", lw_session_folder(session));
    lw_session_end(session);
    return 0;
}
