/*
 * lastwords: a flight recorder. Generated from crates/capi/src by `LASTWORDS_BLESS=1 cargo test -p lastwords-capi header`.
 *
 * Functions that can fail return 0 or -1, or NULL; lw_error() says why.
 */

#ifndef LASTWORDS_H
#define LASTWORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Level of an event: error.
 */
#define LW_LEVEL_ERROR 1

/**
 * Level of an event: warning.
 */
#define LW_LEVEL_WARN 2

/**
 * Level of an event: information.
 */
#define LW_LEVEL_INFO 3

/**
 * Level of an event: debug.
 */
#define LW_LEVEL_DEBUG 4

/**
 * Level of an event: trace.
 */
#define LW_LEVEL_TRACE 5

/**
 * Context: process id.
 */
#define LW_CONTEXT_PID 1

/**
 * Context: thread id.
 */
#define LW_CONTEXT_TID 2

/**
 * Context: thread name.
 */
#define LW_CONTEXT_THREAD_NAME 4

/**
 * Context: CPU.
 */
#define LW_CONTEXT_CPU 8

/**
 * No contexts at all.
 */
#define LW_CONTEXT_NONE 2147483648

/**
 * Memory: the heap.
 */
#define LW_MEMORY_HEAP 1

/**
 * Memory: shared-memory files.
 */
#define LW_MEMORY_SHM 2

/**
 * Memory: a memfd, which a core with the default filter keeps.
 */
#define LW_MEMORY_MEMFD 3

/**
 * Memory: huge pages.
 */
#define LW_MEMORY_HUGE 4

/**
 * Reservation: restartable sequences, the fastest.
 */
#define LW_RESERVATION_RSEQ 1

/**
 * Reservation: compare-and-swap and commit counters.
 */
#define LW_RESERVATION_LOCKLESS 2

/**
 * Reservation: a lock that the dead cannot hold.
 */
#define LW_RESERVATION_LOCKED 3

/**
 * Clock: `CLOCK_MONOTONIC`.
 */
#define LW_CLOCK_MONOTONIC 1

/**
 * Clock: `CLOCK_MONOTONIC_RAW`.
 */
#define LW_CLOCK_MONOTONIC_RAW 2

/**
 * Clock: `CLOCK_BOOTTIME`.
 */
#define LW_CLOCK_BOOTTIME 3

/**
 * Clock: `CLOCK_REALTIME`.
 */
#define LW_CLOCK_REALTIME 4

/**
 * A session that is being configured.
 */
struct lw_builder;

/**
 * A session that records.
 */
struct lw_session;

/**
 * The mark that this process reads a snapshot, so that none replaces it meanwhile.
 */
struct lw_snapshot_reader;

/**
 * A value of an enumeration that has a name.
 */
struct lw_label {
    /**
     * The value; of an unsigned type, the same bits.
     */
    int64_t value;
    /**
     * Its name, ASCII or UTF-8.
     */
    const char *label;
};

/**
 * A field of an event. The list ends where the event's count says.
 */
struct lw_field_desc {
    /**
     * Name, ASCII or UTF-8.
     */
    const char *name;
    /**
     * Type: 1 unsigned, 2 signed, 3 float, 4 bool, 5 text up to a NUL, 6 sequence, 7 array, 8 enumeration, 9 text of fixed
     * size, 10 bytes.
     */
    uint8_t ty;
    /**
     * Bytes of a number, or of an element.
     */
    uint8_t bytes;
    /**
     * 10 or 16, for integers.
     */
    uint8_t base;
    /**
     * Type of the elements, 1 to 4, or of an enumeration's values, 1 or 2.
     */
    uint8_t element;
    /**
     * Elements of an array, labels of an enumeration, bytes of a text of fixed size.
     */
    uint32_t count;
    /**
     * An enumeration's labels.
     */
    const struct lw_label *labels;
};

/**
 * A context of the application's own, as `LW_USER_CONTEXT` makes it.
 */
struct lw_context {
    /**
     * Name and type, which has a fixed size.
     */
    struct lw_field_desc field;
    /**
     * Writes the value of now to `to`, which is zeroed, aligned for every type, and has the type's size. It runs in the
     * recording thread at each event of the channel, in any of them at the same time, perhaps inside a signal handler: it
     * must not allocate, lock, block or record.
     */
    void (*read)(void *to, void *data);
    /**
     * What `read` gets besides.
     */
    void *data;
};

/**
 * What a channel is asked to be; 0 stands for the default everywhere.
 */
struct lw_channel {
    /**
     * Its name.
     */
    const char *name;
    /**
     * Bytes of a sub-buffer, a power of two. Default: 131072.
     */
    uint64_t sub_buffer_size;
    /**
     * Sub-buffers for each CPU, a power of two. Default: 8.
     */
    uint32_t sub_buffers;
    /**
     * `LW_CONTEXT_` bits: what is recorded with each event. Default: the thread id, and the process id in a session that
     * processes share.
     */
    uint32_t contexts;
    /**
     * Takes events of this `LW_LEVEL_` and more severe ones only. Default: all.
     */
    uint32_t max_level;
    /**
     * Not 0: events that find no room are discarded and counted, where the newest overwrite the oldest otherwise.
     */
    uint32_t discard;
    /**
     * Not 0: every event header carries the size of its payload.
     */
    uint32_t payload_size;
    /**
     * How many contexts of the application's own there are.
     */
    uint32_t user_context_count;
    /**
     * They, behind those of `contexts`, in this order; each is made by `LW_USER_CONTEXT`.
     */
    const struct lw_context *user_contexts;
};

/**
 * The static data of a callsite: bit per channel that takes the event, and what the library keeps there.
 */
struct lw_callsite {
    /**
     * Not 0: the event is to be recorded, or was never reached.
     */
    uint64_t enabled;
    /**
     * The library's.
     */
    uint32_t known;
    /**
     * The library's.
     */
    void *only;
    /**
     * The library's.
     */
    uint16_t ids[32];
    /**
     * The library's.
     */
    void *desc;
    /**
     * The library's.
     */
    void *next;
    /**
     * The library's.
     */
    void *other;
};

/**
 * An event. All of it lives as long as the process.
 */
struct lw_event_desc {
    /**
     * Provider.
     */
    const char *provider;
    /**
     * Name.
     */
    const char *name;
    /**
     * Format string of a marker, or empty.
     */
    const char *format;
    /**
     * Source file.
     */
    const char *file;
    /**
     * Source line.
     */
    uint32_t line;
    /**
     * One of `LW_LEVEL_`.
     */
    uint32_t level;
    /**
     * Fields.
     */
    size_t field_count;
    /**
     * The fields in the order of the payload.
     */
    const struct lw_field_desc *fields;
};

/**
 * A part of a payload.
 */
struct lw_part {
    /**
     * Its bytes.
     */
    const void *data;
    /**
     * How many.
     */
    size_t len;
};

/**
 * A rule of which events are recorded; the last that matches an event decides. 0 stands for the default everywhere.
 */
struct lw_rule {
    /**
     * Glob over `provider:name`.
     */
    const char *glob;
    /**
     * Name of the one channel that it is for. Default: all.
     */
    const char *channel;
    /**
     * Matches events of this `LW_LEVEL_` and more severe ones only. Default: all.
     */
    uint32_t max_level;
    /**
     * Not 0: events that match are disabled, where they are enabled otherwise.
     */
    uint32_t disable;
};

/**
 * A snapshot that was taken.
 */
struct lw_taken {
    /**
     * Its number, from 1.
     */
    uint32_t number;
    /**
     * CPUs on which this thread may not run and whose recorders were only waited for.
     */
    uint32_t unvisited;
    /**
     * The session's clock when it was taken, ticks.
     */
    uint64_t clock;
    /**
     * Events that living threads were recording and that were not finished in bounded time.
     */
    uint64_t in_flight;
    /**
     * Bytes of the snapshot before it that nobody had consumed: they are gone.
     */
    uint64_t dropped;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Records `crash:signal` when the process gets SIGSEGV, SIGBUS, SIGABRT, SIGILL or SIGFPE, and then does what was done
 * before. Threads call `lw_prepare_thread` to have a stack overflow recorded too. 0, or -1 (see `lw_error`).
 */
int lw_install_signal_handlers(void);

/**
 * The same for some of these signals only. 0, or -1 (see `lw_error`): one is none of them.
 *
 * `signals` are `count` numbers.
 */
int lw_install_signal_handlers_for(const int *signals, size_t count);

/**
 * Gives the calling thread an alternate signal stack if it has none. 0, or -1 (see `lw_error`).
 */
int lw_prepare_thread(void);

/**
 * Notes the modules that were loaded since the last time (`dlopen`), so that addresses in them can be named.
 */
void lw_refresh_modules(void);

/**
 * Reads the calling thread's name anew, after a change.
 */
void lw_refresh_thread(void);

/**
 * Configures a session of that name. NULL if the name is not text.
 *
 * `name` is null or ends with a NUL.
 */
struct lw_builder *lw_builder_new(const char *name);

/**
 * Frees a builder that is not to be started.
 *
 * `builder` is null, or came from `lw_builder_new` and was not started.
 */
void lw_builder_free(struct lw_builder *builder);

/**
 * Adds a channel. Without any, the session has two: `main`, and `errors` as `lw_builder_errors_channel` adds it. 0, or -1 (see
 * `lw_error`).
 *
 * `builder` came from `lw_builder_new` and was not started; `channel` is readable, with as many contexts as it counts.
 */
int lw_builder_channel(struct lw_builder *builder,
                       const struct lw_channel *channel);

/**
 * Adds the channel `errors`, which takes events of level warn and error only, besides, so that no flood of others evicts them.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_errors_channel(struct lw_builder *builder);

/**
 * Where the memory comes from: one of `LW_MEMORY_`. Default: shared-memory files.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_memory(struct lw_builder *builder, uint32_t memory);

/**
 * The memory is a DAX file or device. If `reuse` is 0, a session that is recorded there is not overwritten: the start fails.
 *
 * `builder` came from `lw_builder_new` and was not started; `file` is null or ends with a NUL.
 */
int lw_builder_dax(struct lw_builder *builder,
                   const char *file,
                   int reuse);

/**
 * The memory is a physical range through a device file, or a range of a plain file: `len` bytes at `offset`, a multiple of
 * 4096. `reuse` as in `lw_builder_dax`.
 *
 * `builder` came from `lw_builder_new` and was not started; `file` is null or ends with a NUL.
 */
int lw_builder_physical(struct lw_builder *builder,
                        const char *file,
                        uint64_t offset,
                        uint64_t len,
                        int reuse);

/**
 * How space in the rings is reserved: one of `LW_RESERVATION_`. Default: the fastest that works.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_reservation(struct lw_builder *builder, uint32_t reservation);

/**
 * The clock: one of `LW_CLOCK_`. Default: the CPU's counter where it is sound, else `CLOCK_MONOTONIC`.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_clock(struct lw_builder *builder, uint32_t clock);

/**
 * Most memory that the session may take, bytes. More is an error at the start.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_size_limit(struct lw_builder *builder, uint64_t bytes);

/**
 * Bytes for descriptions of events. Default: 512 KiB.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_registry_size(struct lw_builder *builder, uint64_t bytes);

/**
 * Most spans that can be listed as open at a time; 0 for no table. Spans are what Rust code in the process opens.
 * Default: 512.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_spans(struct lw_builder *builder, uint32_t most);

/**
 * Lets all processes of the user that begin a session of this name share it.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_shared(struct lw_builder *builder);

/**
 * The folder of sessions.
 *
 * `builder` came from `lw_builder_new` and was not started; `folder` is null or ends with a NUL.
 */
int lw_builder_dir(struct lw_builder *builder, const char *folder);

/**
 * Enables events by a glob over `provider:name`; those of no glob are disabled. Without any, all are enabled.
 *
 * `builder` came from `lw_builder_new` and was not started; `glob` is null or ends with a NUL.
 */
int lw_builder_events(struct lw_builder *builder, const char *glob);

/**
 * Adds a property of the trace, such as a version.
 *
 * `builder` came from `lw_builder_new` and was not started; `key` and `value` are null or end with a NUL.
 */
int lw_builder_env(struct lw_builder *builder, const char *key, const char *value);

/**
 * Allocates the spare for snapshots from the start.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_snapshot(struct lw_builder *builder);

/**
 * Leaves the session's folder behind when the session ends, as `lw_session_keep` does.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_keep(struct lw_builder *builder);

/**
 * Whether a thread waits for changes by other processes, and once a second keeps the clock's calibration fresh: not if `on`
 * is 0. Default: yes.
 *
 * `builder` came from `lw_builder_new` and was not started.
 */
int lw_builder_listen(struct lw_builder *builder,
                      int on);

/**
 * Begins the session and frees the builder. NULL on failure (see `lw_error`).
 *
 * `builder` is null, or came from `lw_builder_new` and was not started.
 */
struct lw_session *lw_builder_start(struct lw_builder *builder);

/**
 * Why the last call of this thread failed: text that holds until the thread's next failure; empty if none failed.
 */
const char *lw_error(void);

/**
 * Records a payload of `len` bytes that lies in whole words. Called by `LW_EVENT` where `site->enabled` was
 * not 0.
 *
 * `site` and `event` are static, and of one callsite; `words` has `len` bytes rounded up to words.
 */
void lw_record_words(struct lw_callsite *site, const struct lw_event_desc *event, const uint64_t *words, size_t len);

/**
 * Records a payload of 1 to 12 bytes where that is done at once. It lies behind 4 bytes of zeros in the two words; `size`
 * counts these and it. Called by `LW_EVENT`, which calls `lw_record_framed` when it gets false.
 *
 * `site` is static.
 */
bool lw_try_2(uint64_t first,
              uint64_t second,
              struct lw_callsite *site,
              size_t size);

/**
 * The same with a payload of 13 to 20 bytes, in three words.
 *
 * `site` is static.
 */
bool lw_try_3(uint64_t first, uint64_t second, struct lw_callsite *site, size_t size, uint64_t third);

/**
 * The same with a payload of up to 12 bytes, in two words, and a text with its NUL behind it. Called by `LW_EVENT`, which
 * calls `lw_record_framed_text` when it gets false.
 *
 * `site` is static; `text` ends with a NUL.
 */
bool lw_try_text(uint64_t first,
                 uint64_t second,
                 struct lw_callsite *site,
                 size_t size,
                 const char *text);

/**
 * Records a payload of 1 to 20 bytes, which lies in the words as for `lw_try_3`. Called by `LW_EVENT`.
 *
 * `site` and `event` are static, and of one callsite.
 */
void lw_record_framed(struct lw_callsite *site,
                      const struct lw_event_desc *event,
                      uint64_t first,
                      uint64_t second,
                      uint64_t third,
                      size_t size);

/**
 * Records a payload of up to 12 bytes, which lies in the words as for `lw_try_2`, and a text with its NUL behind it. Called
 * by `LW_EVENT`.
 *
 * `site` and `event` are static, and of one callsite; `text` ends with a NUL.
 */
void lw_record_framed_text(struct lw_callsite *site,
                           const struct lw_event_desc *event,
                           uint64_t first,
                           uint64_t second,
                           const char *text,
                           size_t size);

/**
 * Records a payload given in parts. Called by `LW_EVENT` for long payloads.
 *
 * As for `lw_record_words`; `parts` are `count` parts whose bytes are readable.
 */
void lw_record_parts(struct lw_callsite *site,
                     const struct lw_event_desc *event,
                     const struct lw_part *parts,
                     size_t count);

/**
 * Begins a session of that name with all defaults. NULL on failure (see `lw_error`).
 *
 * `name` is null or ends with a NUL.
 */
struct lw_session *lw_session_begin(const char *name);

/**
 * The session's folder, what `lastwords recover` takes; empty for a session without one. Holds until the session ends.
 *
 * `session` is a session that was not ended.
 */
const char *lw_session_folder(const struct lw_session *session);

/**
 * The session's name. Holds until the session ends.
 *
 * `session` is a session that was not ended.
 */
const char *lw_session_name(const struct lw_session *session);

/**
 * What the memory is, or how a session that was joined differs from what was asked for: for people. Holds until the session
 * ends.
 *
 * `session` is a session that was not ended.
 */
const char *lw_session_note(const struct lw_session *session);

/**
 * Writes the session's UUID, which is that of its traces. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended; `uuid` has room for 16 bytes.
 */
int lw_session_uuid(const struct lw_session *session, uint8_t *uuid);

/**
 * How space is reserved, one of `LW_RESERVATION_`: what was chosen where nothing was asked for. 0 where there is no session.
 *
 * `session` is a session that was not ended.
 */
uint32_t lw_session_reservation(const struct lw_session *session);

/**
 * Leaves the folder behind when the session ends.
 *
 * `session` is a session that was not ended.
 */
int lw_session_keep(const struct lw_session *session);

/**
 * Enables the events that a glob over `provider:name` matches. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended; `glob` is null or ends with a NUL.
 */
int lw_session_enable(const struct lw_session *session, const char *glob);

/**
 * Disables the events that a glob over `provider:name` matches. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended; `glob` is null or ends with a NUL.
 */
int lw_session_disable(const struct lw_session *session, const char *glob);

/**
 * Adds a rule. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended; `rule` is readable, its texts end with a NUL.
 */
int lw_session_rule(const struct lw_session *session, const struct lw_rule *rule);

/**
 * Stops (0) or continues (not 0) recording, in all processes of the session.
 *
 * `session` is a session that was not ended.
 */
int lw_session_recording(const struct lw_session *session, int recording);

/**
 * Makes readers pass over all that was recorded until now. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended.
 */
int lw_session_clear(const struct lw_session *session);

/**
 * Ends the session and frees it; its folder goes, unless it is to be kept.
 *
 * `session` is null, or a session that was not ended.
 */
void lw_session_end(struct lw_session *session);

/**
 * Keeps the folders of all sessions of this process whatever is ended: for handlers of crashes. Async-signal-safe.
 */
void lw_keep_all(void);

/**
 * Allocates the spare of every ring, so that snapshots can be taken. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended.
 */
int lw_session_enable_snapshots(const struct lw_session *session);

/**
 * Frees the spares, and the snapshot in them. 0, or -1 (see `lw_error`): the snapshot is being read.
 *
 * `session` is a session that was not ended.
 */
int lw_session_disable_snapshots(const struct lw_session *session);

/**
 * Takes a snapshot: what was recorded until now is kept aside while recording goes on. Needs `lw_builder_snapshot` or
 * `lw_session_enable_snapshots`. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended; `taken` is null or writable.
 */
int lw_session_snapshot(const struct lw_session *session, struct lw_taken *taken);

/**
 * Takes a snapshot of the streams that are bound to a CPU, in all channels. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended; `taken` is null or writable.
 */
int lw_session_snapshot_cpu(const struct lw_session *session, uint32_t cpu, struct lw_taken *taken);

/**
 * Takes a snapshot of the stream of that index, a channel's on a CPU. 0, or -1 (see `lw_error`).
 *
 * `session` is a session that was not ended; `taken` is null or writable.
 */
int lw_session_snapshot_stream(const struct lw_session *session, uint32_t stream, struct lw_taken *taken);

/**
 * Marks the snapshot as being read by this process, so that none replaces it. NULL (see `lw_error`): there is none, or another
 * process reads it.
 *
 * `session` is a session that is not ended before the mark is taken away.
 */
struct lw_snapshot_reader *lw_session_read_snapshot(const struct lw_session *session);

/**
 * Takes the mark away and frees it. If `done` is not 0, the snapshot was read and is not needed again; else it can be read
 * again.
 *
 * `reader` is null, or came from `lw_session_read_snapshot` and was not ended; its session was not ended either.
 */
void lw_snapshot_reader_end(struct lw_snapshot_reader *reader,
                            int done);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LASTWORDS_H */

#include "lastwords_event.h"
