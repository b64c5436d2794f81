/*
 * lastwords: a flight recorder for programs in C and C++. What a program recorded is recovered after it died.
 *
 *     #include <lastwords.h>
 *
 *     int main(void)
 *     {
 *         lw_start("shop");
 *         LW_EVENT("shop", "order", lw_u64(id, 7), lw_str(customer, "nobody"));
 *     }
 *
 *     cc shop.c $(pkg-config --cflags --libs lastwords)                        with the shared library
 *     cc -static shop.c $(pkg-config --static --cflags --libs lastwords)       without any shared library
 *
 * lastwords_event.h, which this file includes, has the events. What holds for every function here:
 *
 * Errors. A function that returns an int returns LW_OK, which is 0, or a negative code of enum lw_code; a function that
 *   returns a pointer to a builder, session or reader returns NULL. lw_error() says why, in words, and lw_error_code() gives the
 *   code. Any call may return LW_ERROR_ARGUMENT for a null pointer, a text that is not UTF-8, or a number that stands for nothing,
 *   and LW_ERROR_OTHER for a fault of the library itself. The codes that a function returns besides are named with it. A function
 *   that fails changes nothing.
 * Pointers. A builder, session or reader is one that the library gave and that was not freed; NULL is refused as an error.
 *   Texts end with a NUL. The library copies what it gets, except where a comment says that something lives as long as the process.
 * Threads. Any thread may call any function at any time, but a builder is for one thread at a time, and nothing may use a
 *   session while lw_session_end or another function ends it. Events may be recorded meanwhile and after: they go nowhere.
 * Signal handlers. Events may be recorded in handlers. Functions may not be called there, but for lw_strerror.
 * errno. Recording an event leaves it as it was, and so do the handlers of signals. Other functions may change it.
 * fork. A forked child records in the session of its parent and may end its own handle of it. In the child of a process that
 *   has several threads, call no function before exec; record events.
 * vfork. The child may record; the library defines vfork for this. A child of clone with CLONE_VM must not, and neither the child of a
 *   vfork that was bound before the library was loaded.
 * dlopen. A library that recorded an event stays in memory when it is closed, since its events are described there.
 * C++. No function throws an exception. Events may be recorded in constructors of static objects; a session may begin there.
 * ABI. Structures that a function fills or takes along with a size may grow at their ends: the size tells the versions apart.
 */
#ifndef LASTWORDS_H
#define LASTWORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Levels of events, from the most severe one. */
#define LW_LEVEL_ERROR 1
#define LW_LEVEL_WARN 2
#define LW_LEVEL_INFO 3
#define LW_LEVEL_DEBUG 4
#define LW_LEVEL_TRACE 5

/* Bits of struct lw_channel's contexts: what is recorded with each event. */
#define LW_CONTEXT_PID 1
#define LW_CONTEXT_TID 2
#define LW_CONTEXT_THREAD_NAME 4
#define LW_CONTEXT_CPU 8
/* No context at all. */
#define LW_CONTEXT_NONE 0x80000000u

/* Memory of a session: the heap, which only a core file keeps; files of shared memory; a memfd, which a core file with the default
 * filter keeps; huge pages. */
#define LW_MEMORY_HEAP 1
#define LW_MEMORY_SHM 2
#define LW_MEMORY_MEMFD 3
#define LW_MEMORY_HUGE 4

/* Ways to reserve space for an event: restartable sequences, the fastest; compare-and-swap with commit counters; a lock that is
 * released when its holder dies. */
#define LW_RESERVATION_RSEQ 1
#define LW_RESERVATION_LOCKLESS 2
#define LW_RESERVATION_LOCKED 3

/* When events are written back from the caches into persistent memory: never, when a sub-buffer is closed, or when an event is
 * committed. */
#define LW_PERSIST_NONE 0
#define LW_PERSIST_SUB_BUFFER 1
#define LW_PERSIST_EVENT 2

/* Clocks: those of clock_gettime. */
#define LW_CLOCK_MONOTONIC 1
#define LW_CLOCK_MONOTONIC_RAW 2
#define LW_CLOCK_BOOTTIME 3
#define LW_CLOCK_REALTIME 4

/* Rings of which a snapshot is taken: all; those of a CPU in all channels; one stream, by its index. */
#define LW_RINGS_ALL 1
#define LW_RINGS_CPU 2
#define LW_RINGS_STREAM 3

/* ---- Errors ---- */

/* What functions return. */
enum lw_code {
    LW_OK = 0,
    /* A reason that has no code of its own. */
    LW_ERROR_OTHER = -1,
    /* An argument is not valid: a null pointer, a text that is not UTF-8, a name, a number. */
    LW_ERROR_ARGUMENT = -2,
    /* The system refused a call on a file, a folder, a signal. errno is part of the text. */
    LW_ERROR_SYSTEM = -3,
    /* There is not enough memory, or the session would take more than its limit. */
    LW_ERROR_MEMORY = -4,
    /* A table of fixed size, such as that of the rules, has no room. */
    LW_ERROR_FULL = -5,
    /* This machine, memory, session or version of the library does not offer what was asked for. */
    LW_ERROR_UNSUPPORTED = -6,
    /* Another process or thread holds it. Try again. */
    LW_ERROR_BUSY = -7,
    /* There is no spare memory for a snapshot, or there is no snapshot. */
    LW_ERROR_NO_SNAPSHOT = -8,
    /* A folder belongs to another user, or others may write to it. */
    LW_ERROR_UNTRUSTED = -9,
    /* A file is damaged, or of another version. */
    LW_ERROR_FORMAT = -10,
    /* The name exists already. */
    LW_ERROR_EXISTS = -11
};

/* The meaning of a code in a few words: static text, never NULL. Async-signal-safe. */
const char *lw_strerror(int code);

/* Why the calling thread's last failed call failed: what happened, to which file, what to do. Empty if none failed. The text
 * holds until the thread's next failure, or its end. */
const char *lw_error(void);

/* The code of that failure; LW_OK if none failed. */
int lw_error_code(void);

/* ---- Signals that end the process ---- */

/*
 * Records the event crash:signal when the process gets one of these signals, then does what would have been done before: calls the
 * handler that was installed, or lets the process die of the signal. Also gives the calling thread an alternate signal stack.
 * They run on it unless that other handler does not (no SA_ONSTACK): an overflow of the stack is not recorded then.
 * signals: numbers, of SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE; NULL with a count of 0 for all five.
 * Errors: LW_ERROR_ARGUMENT if another signal is among them, LW_ERROR_SYSTEM.
 *
 *     lw_install_signal_handlers(NULL, 0);
 */
int lw_install_signal_handlers(const int *signals, size_t count);

/* Gives the calling thread an alternate signal stack if it has none, so that an overflow of its stack is recorded too. To be
 * called by each thread but the one that installed the handlers. The stack of 64 KiB stays as long as the process.
 * Errors: LW_ERROR_SYSTEM. */
int lw_prepare_thread(void);

/* Notes the libraries that were loaded (dlopen) since the last time, so that addresses in them can be named in backtraces. */
void lw_refresh_modules(void);

/* Reads the calling thread's name anew, for LW_CONTEXT_THREAD_NAME, after the name was changed. */
void lw_refresh_thread(void);

/* ---- Sessions to be: builders ---- */

/* A session that is being configured. */
struct lw_builder;
/* A session that records. */
struct lw_session;

/* A value of an enumeration that has a name. Lives as long as the process. */
struct lw_label {
    /* The value; the same bits if its type is unsigned. */
    int64_t value;
    const char *label;
};

/* A field of an event or a context. Made by the macros of lastwords_event.h; lives as long as the process. */
struct lw_field_desc {
    const char *name;
    /* 1 unsigned, 2 signed, 3 float, 4 bool, 5 text up to a NUL, 6 sequence, 7 array, 8 enumeration, 9 text of fixed size,
     * 10 bytes. */
    uint8_t ty;
    /* Bytes of a number, or of an element. */
    uint8_t bytes;
    /* 10 or 16, for integers. */
    uint8_t base;
    /* Type of the elements, 1 to 4, or of an enumeration's values, 1 or 2. */
    uint8_t element;
    /* Elements of an array, labels of an enumeration, bytes of a text of fixed size. */
    uint32_t count;
    const struct lw_label *labels;
};

/* A context of the application's own. Made by LW_USER_CONTEXT. */
struct lw_context {
    /* Name and type. The type has a fixed size. */
    struct lw_field_desc field;
    /* Writes the value of now to `to`, which is zeroed, aligned for every type, and has the type's size. It runs in the
     * recording thread at each event of the channel, in several threads at a time, perhaps inside a signal handler: it must not
     * allocate, lock, block, throw or record. */
    void (*read)(void *to, void *data);
    /* An argument for read. */
    void *data;
};

/* The options of a channel. 0 stands for the default everywhere, so set all to 0 (memset, or = {0}) before you choose. */
struct lw_channel {
    /* 1 to 47 letters, digits, '.', '_' and '-'. */
    const char *name;
    /* Bytes of a sub-buffer, a power of two. Default: 131072. */
    uint64_t sub_buffer_size;
    /* Sub-buffers for each CPU, a power of two. Default: 8. */
    uint32_t sub_buffers;
    /* LW_CONTEXT_ bits. Default: the thread id, and the process id in a session that processes share. */
    uint32_t contexts;
    /* The least severe LW_LEVEL_ that the channel takes. Default: all. */
    uint32_t max_level;
    /* Not 0: events that find no room are discarded and counted. Default: the newest events overwrite the oldest. */
    uint32_t discard;
    /* Not 0: every event header carries the size of its payload. */
    uint32_t payload_size;
    /* How many user_contexts there are. */
    uint32_t user_context_count;
    /* Contexts of the application's own, recorded in this order behind those of contexts. */
    const struct lw_context *user_contexts;
    /* Not 0: every event header has the event's id and whole time stamp, 18 bytes, so that each event can be read whatever happened to
     * those before it. Default: 4 bytes most often. */
    uint32_t full_headers;
    /* 0. */
    uint32_t reserved;
};

/*
 * Begins to configure a session of that name: 1 to 47 letters, digits, '.', '_' and '-'. Give the builder to lw_builder_start, or
 * free it. The name is checked at the start.
 *
 *     struct lw_builder *builder = lw_builder_new("shop");
 *     lw_builder_memory(builder, LW_MEMORY_MEMFD);
 *     struct lw_session *session = lw_builder_start(builder);
 */
struct lw_builder *lw_builder_new(const char *name);

/* Frees a builder that is not to be started. NULL is passed over. */
void lw_builder_free(struct lw_builder *builder);

/* Begins the session. The builder is freed in any case, and NULL is given on failure, so that lw_builder_new need not be checked.
 * Errors: LW_ERROR_ARGUMENT (names, sizes), LW_ERROR_SYSTEM, LW_ERROR_MEMORY, LW_ERROR_UNSUPPORTED, LW_ERROR_BUSY,
 * LW_ERROR_UNTRUSTED, LW_ERROR_FORMAT, LW_ERROR_FULL. */
struct lw_session *lw_builder_start(struct lw_builder *builder);

/* Begins the session as lw_builder_start does. If that fails, gives a session that records nothing, with which the program goes on
 * as if it recorded: never NULL. lw_session_problem says why. NULL as a builder is such a failure too. Snapshots and clearing give
 * LW_ERROR_UNSUPPORTED for such a session.
 *
 *     struct lw_session *session = lw_builder_start_or_disabled(lw_builder_new("shop"));
 *     if (*lw_session_problem(session))
 *         fprintf(stderr, "not recorded: %s\n", lw_session_problem(session));
 */
struct lw_session *lw_builder_start_or_disabled(struct lw_builder *builder);

/* Adds a channel, by lw_builder_channel below. size is that of struct lw_channel when the caller was compiled.
 * Errors: LW_ERROR_UNSUPPORTED if a field is set that this version of the library does not know. */
int lw_builder_channel_sized(struct lw_builder *builder, const struct lw_channel *channel, size_t size);

/* Adds the channel `errors`, which takes events of level warn and error only, so that a flood of others does not evict them. A
 * session for which no channel was added has it, and the channel `main`. */
int lw_builder_errors_channel(struct lw_builder *builder);

/* The memory: one of LW_MEMORY_. Default: LW_MEMORY_SHM. */
int lw_builder_memory(struct lw_builder *builder, uint32_t memory);

/* The memory is a DAX file or device, which persists. If reuse is 0, a session that is recorded there is not overwritten: the
 * start fails. */
int lw_builder_dax(struct lw_builder *builder, const char *file, int reuse);

/* The memory is a physical range through a device file, or a range of a plain file: len bytes from offset, a multiple of 4096
 * bytes. reuse is as for lw_builder_dax. */
int lw_builder_physical(struct lw_builder *builder, const char *file, uint64_t offset, uint64_t len, int reuse);

/* How space is reserved: one of LW_RESERVATION_. Default: the fastest that works here. */
int lw_builder_reservation(struct lw_builder *builder, uint32_t reservation);

/* When events are written back into persistent memory (lw_builder_dax, lw_builder_physical): one of LW_PERSIST_. Default:
 * LW_PERSIST_EVENT there. Elsewhere any policy but LW_PERSIST_NONE is an error at the start: LW_ERROR_UNSUPPORTED. */
int lw_builder_persist(struct lw_builder *builder, uint32_t policy);

/* The clock: one of LW_CLOCK_. Default: the CPU's counter where it is sound, else LW_CLOCK_MONOTONIC. */
int lw_builder_clock(struct lw_builder *builder, uint32_t clock);

/* Sizes the rings of the first channel so that those of all CPUs together take at most this many bytes. Default: the rings of channels
 * whose size is not chosen take at most 16 MiB together, and less where the process's memory is limited. */
int lw_builder_size(struct lw_builder *builder, uint64_t bytes);

/* Allocates all memory of the rings at the start. Default: a ring gets its memory when its CPU first records. For programs whose
 * threads block SIGBUS after their first event, and whose folder of sessions may become full: the kernel ends such a process if a page
 * gets no memory. */
int lw_builder_preallocate(struct lw_builder *builder);

/* The most memory that the session may take, bytes. If it needs more, the start fails. Default: no limit. */
int lw_builder_size_limit(struct lw_builder *builder, uint64_t bytes);

/* Sizes the rings of the first channel so that each holds `seconds` of what its CPU records: `bytes_per_second`, or, where that is
 * 0, as much as the busiest ring took on the average in the newest session of this name. */
int lw_builder_seconds(struct lw_builder *builder, uint32_t seconds, uint64_t bytes_per_second);

/* Bytes for the descriptions of events, from 4096 to 2^30. Default: 524288. */
int lw_builder_registry_size(struct lw_builder *builder, uint64_t bytes);

/* The most spans that can be listed as open at a time; 0 for none. Rust code in the process opens spans. Default: 512. */
int lw_builder_spans(struct lw_builder *builder, uint32_t most);

/* How many counters (lw_counter_add) and how many histograms (lw_histogram_record) the session has room for. Default: 0; 256 and 16 in
 * a session of lw_start. */
int lw_builder_counters(struct lw_builder *builder, uint32_t most);
int lw_builder_histograms(struct lw_builder *builder, uint32_t most);

/* All processes of the user that begin a session of this name share it. */
int lw_builder_shared(struct lw_builder *builder);

/* The folder of sessions. Default: $LASTWORDS_DIR, else $XDG_RUNTIME_DIR/lastwords, else /dev/shm/lastwords-UID. */
int lw_builder_dir(struct lw_builder *builder, const char *folder);

/* Enables the events that a glob over provider:name matches, such as "shop:*". Events that no glob matches are disabled. May be
 * called several times. Default: all events are enabled. */
int lw_builder_events(struct lw_builder *builder, const char *glob);

/* Hides the values of fields whose names match a glob, in all events of the process: "<secret>" is recorded in place of them, or a
 * hash with a random key of the process, such as "#1f3a9c04d2e85b67". Both may be called several times; secret takes precedence. A
 * value that is part of another text is not found. Environment: LASTWORDS_SECRET and LASTWORDS_HASHED, globs with commas between. */
int lw_builder_secret(struct lw_builder *builder, const char *glob);
int lw_builder_hashed(struct lw_builder *builder, const char *glob);

/* Adds a property of the trace, such as the program's version. */
int lw_builder_env(struct lw_builder *builder, const char *key, const char *value);

/* Allocates the spare memory for snapshots at the start, as lw_session_enable_snapshots does later. */
int lw_builder_snapshot(struct lw_builder *builder);

/* Limits the snapshots that triggers take: at most `most` (1 or more) in any `milliseconds`. Default: 4 in 60000. */
int lw_builder_trigger_limit(struct lw_builder *builder, uint32_t most, uint64_t milliseconds);

/* The events around a trigger that its saved snapshot has: from `before` milliseconds ahead of it (UINT64_MAX: all that the rings have)
 * to `after` milliseconds behind it. Recording goes on meanwhile. Default: UINT64_MAX and 0. */
int lw_builder_trigger_window(struct lw_builder *builder, uint64_t before, uint64_t after);

/* Whether the snapshots of triggers are saved as sessions of their own: not if on is 0. Default: they are. */
int lw_builder_save_snapshots(struct lw_builder *builder, int on);

/* Removes the session when it ends in good order. Default: it stays, until newer sessions take its place. */
int lw_builder_remove_at_end(struct lw_builder *builder);

/* Which ended sessions stay when this one begins: the newest `sessions` of each name (UINT32_MAX for all), and no more than
 * `bytes` of the user in the folder of sessions (UINT64_MAX for all). The oldest are removed first. Default: 5 and 2^30. */
int lw_builder_retention(struct lw_builder *builder, uint32_t sessions, uint64_t bytes);

/* Whether a thread of the library waits for changes by other processes and, once a second, keeps the clock's calibration fresh:
 * not if on is 0. Default: it does. */
int lw_builder_listen(struct lw_builder *builder, int on);

/* ---- Sessions ---- */

/* A rule says which events are recorded. The last rule that matches an event decides. 0 stands for the default everywhere. */
struct lw_rule {
    /* A glob over provider:name. */
    const char *glob;
    /* The name of the one channel that the rule is for. Default: all channels. */
    const char *channel;
    /* The least severe LW_LEVEL_ that the rule matches. Default: all. */
    uint32_t max_level;
    /* Not 0: events that match are disabled. Default: they are enabled. */
    uint32_t disable;
    /* An expression that events must fulfil: "bytes > 4096 && comm ~ \"redis*\"" (docs/FILTER.md). It is evaluated in the
     * application before anything is reserved; events for which it is false or unknown are not recorded, which is no loss.
     * Default: all events that match are taken. */
    const char *filter;
};

/*
 * Records this program from now on until the process ends, however it ends: starts a session of this name with all defaults, and
 * installs the handlers of lw_install_signal_handlers. The program goes on if that fails: a line on stderr says why, and
 * lw_session_problem too. Never NULL. The session cannot be ended, and what the function returns need not be kept; a second call
 * returns the first session.
 *
 *     lw_start("shop");
 */
const struct lw_session *lw_start(const char *name);

/* Begins a session of that name with all defaults. Errors: those of lw_builder_start. */
struct lw_session *lw_session_begin(const char *name);

/* Ends the session and frees it. What was recorded stays, until newer sessions take its place. NULL is passed over. */
void lw_session_end(struct lw_session *session);

/* Ends the session as lw_session_end does, and notes for `lastwords list` that it ended with an error unless exit_status is 0.
 * Gives exit_status back, so that main can end with: return lw_session_finish(session, status); */
int lw_session_finish(struct lw_session *session, int exit_status);

/* Ends the session as lw_session_end does, and removes all that was recorded, unless other processes record in the session. */
void lw_session_remove(struct lw_session *session);

/* Texts that hold until the session ends; empty if session is NULL. The folder, which `lastwords recover` takes, is empty for a
 * session that has none; the note tells people what the memory is, or how a session that was joined differs from what was asked
 * for; the problem is why a session of lw_builder_start_or_disabled is disabled. */
const char *lw_session_name(const struct lw_session *session);
const char *lw_session_folder(const struct lw_session *session);
const char *lw_session_note(const struct lw_session *session);
const char *lw_session_problem(const struct lw_session *session);

/* Writes the session's UUID, which is that of its traces, to 16 bytes. */
int lw_session_uuid(const struct lw_session *session, uint8_t *uuid);

/* How space is reserved: one of LW_RESERVATION_, 0 if session is NULL. */
uint32_t lw_session_reservation(const struct lw_session *session);

/* Enables or disables the events that a glob over provider:name matches, in all processes of the session.
 * Errors: LW_ERROR_FULL, LW_ERROR_BUSY, LW_ERROR_UNSUPPORTED if the glob does not have 1 to 112 bytes. */
int lw_session_enable(const struct lw_session *session, const char *glob);
int lw_session_disable(const struct lw_session *session, const char *glob);

/* Adds a rule, by lw_session_rule below. size is that of struct lw_rule when the caller was compiled.
 * Errors: LW_ERROR_ARGUMENT if there is no such channel, LW_ERROR_FULL, LW_ERROR_BUSY, LW_ERROR_UNSUPPORTED as for
 * lw_session_enable and lw_builder_channel_sized, and if the filter is not an expression. */
int lw_session_rule_sized(const struct lw_session *session, const struct lw_rule *rule, size_t size);

/* Creates a channel while the session records, by lw_session_create_channel below. size is that of struct lw_channel when the
 * caller was compiled.
 * Errors: LW_ERROR_EXISTS if the session has a channel of this name, LW_ERROR_ARGUMENT (name, sizes), LW_ERROR_MEMORY if the file
 * system has no room, LW_ERROR_FULL, LW_ERROR_BUSY, LW_ERROR_UNSUPPORTED if the session's memory is not LW_MEMORY_SHM, if
 * the session has ended or is disabled, if a process of an older version records in it, if the channel has contexts of the
 * application's own, and if the filter is not an expression. */
int lw_session_create_channel_sized(const struct lw_session *session, const struct lw_channel *channel, const char *filter,
                                    size_t size);

/* Stops recording if recording is 0, else continues, in all processes of the session. */
int lw_session_recording(const struct lw_session *session, int recording);

/* Makes readers pass over all that was recorded until now. Errors: LW_ERROR_BUSY. */
int lw_session_clear(const struct lw_session *session);

/* ---- Snapshots ---- */

/* A snapshot that was taken. */
struct lw_taken {
    /* Its number, from 1. */
    uint32_t number;
    /* CPUs on which the calling thread may not run, so that it could only wait for events in progress there. */
    uint32_t unvisited;
    /* The session's clock when it was taken, ticks. */
    uint64_t clock;
    /* Events that living threads were recording, and that were not complete within a bounded time. */
    uint64_t in_flight;
    /* Bytes of the snapshot before it that no reader had consumed. They are lost. */
    uint64_t dropped;
};

/* The mark that this process reads a snapshot. No other snapshot replaces it meanwhile. */
struct lw_snapshot_reader;

/* Allocates spare memory for every ring, so that snapshots can be taken. Errors: LW_ERROR_MEMORY, LW_ERROR_SYSTEM,
 * LW_ERROR_BUSY, LW_ERROR_UNSUPPORTED. */
int lw_session_enable_snapshots(const struct lw_session *session);

/* Frees the spare memory and the snapshot in it. Errors: LW_ERROR_BUSY while the snapshot is read. */
int lw_session_disable_snapshots(const struct lw_session *session);

/* Takes a snapshot, by lw_session_snapshot below: what the rings recorded until now is kept aside while recording goes on.
 * rings: one of LW_RINGS_. index: of the CPU or stream, else 0. taken: NULL, or filled; size is its size when the caller was
 * compiled. Errors: LW_ERROR_NO_SNAPSHOT if snapshots are not enabled or there is no such ring, LW_ERROR_BUSY while one is read. */
int lw_session_snapshot_sized(const struct lw_session *session, uint32_t rings, uint32_t index, struct lw_taken *taken,
                              size_t size);

/* Marks the snapshot as being read by this process, so that none replaces it. The session must not end before the mark does.
 * Errors: LW_ERROR_NO_SNAPSHOT, LW_ERROR_BUSY while another process reads it. */
struct lw_snapshot_reader *lw_session_read_snapshot(const struct lw_session *session);

/* Takes the mark away and frees it. If done is not 0, the snapshot was read and may be replaced; else it can be read again. NULL
 * is passed over. */
void lw_snapshot_reader_end(struct lw_snapshot_reader *reader, int done);

/* ---- Triggers ---- */

/* Fires a trigger in all sessions of this process: takes a snapshot of each that has snapshots enabled, so that what was recorded
 * before the call is kept while recording goes on. Records an event lastwords:trigger with at most 64 bytes of the name (UTF-8). The
 * session's thread saves the snapshot as a session of its own. May be called from every thread; in signal handlers, where it is
 * async-signal-safe, the session's thread takes the snapshot. NULL is passed over. docs/TRIGGERS.md has the rest. */
void lw_trigger(const char *name);

/* ---- Counters and histograms ---- */

/* Adds to the counter of this name in all sessions of this process that have room for counters. The number is in the session's memory:
 * `lastwords counters` prints it after the process was killed, from a core too. All processes of a session add to the same number. The
 * call looks for the name each time, and takes no lock. It may be called from every thread, and is async-signal-safe if it returns
 * LW_OK. A name has 1 to 176 bytes of UTF-8 without the byte 0x1f. Counters without room are counted as lost, which is no error. */
int lw_counter_add(const char *name, uint64_t amount);

/* Records a value, such as a size or a number of nanoseconds, in the histogram of this name. In all else it is as lw_counter_add. */
int lw_histogram_record(const char *name, uint64_t value);

/* ---- Calls that pass the sizes of structures ---- */

/* Adds a channel. Without any, a session has the channels `main` and `errors`.
 *
 *     struct lw_channel channel;
 *     memset(&channel, 0, sizeof(channel));
 *     channel.name = "main";
 *     channel.sub_buffer_size = 1 << 20;
 *     lw_builder_channel(builder, &channel);
 */
static inline int lw_builder_channel(struct lw_builder *builder, const struct lw_channel *channel)
{
    return lw_builder_channel_sized(builder, channel, sizeof(struct lw_channel));
}

/* Adds a rule. */
static inline int lw_session_rule(const struct lw_session *session, const struct lw_rule *rule)
{
    return lw_session_rule_sized(session, rule, sizeof(struct lw_rule));
}

/* Creates a channel while the session records, in all its processes, which count events for it as lost until they have mapped
 * it (milliseconds). With a filter (not NULL), the channel takes from now on all events for which the expression is true. With max_level,
 * it takes such events as the session's rules enable. With neither it takes nothing until lw_session_rule sends events there. */
static inline int lw_session_create_channel(const struct lw_session *session, const struct lw_channel *channel,
                                            const char *filter)
{
    return lw_session_create_channel_sized(session, channel, filter, sizeof(struct lw_channel));
}

/* Takes a snapshot of all rings, of the rings of a CPU, or of a stream. */
static inline int lw_session_snapshot(const struct lw_session *session, struct lw_taken *taken)
{
    return lw_session_snapshot_sized(session, LW_RINGS_ALL, 0, taken, sizeof(struct lw_taken));
}

static inline int lw_session_snapshot_cpu(const struct lw_session *session, uint32_t cpu, struct lw_taken *taken)
{
    return lw_session_snapshot_sized(session, LW_RINGS_CPU, cpu, taken, sizeof(struct lw_taken));
}

static inline int lw_session_snapshot_stream(const struct lw_session *session, uint32_t stream, struct lw_taken *taken)
{
    return lw_session_snapshot_sized(session, LW_RINGS_STREAM, stream, taken, sizeof(struct lw_taken));
}

/* ---- What the macros of lastwords_event.h use; not for other use ---- */

/* The static data of a callsite. enabled is not 0 if the event is to be recorded or was never reached. The library owns the
 * rest. */
struct lw_callsite {
    uint64_t enabled;
    uint32_t known;
    uint32_t hides;
    void *only;
    uint16_t ids[32];
    void *desc;
    void *next;
    void *other;
    void *filters;
};

/* An event. Lives as long as the process, with all that it points to. */
struct lw_event_desc {
    const char *provider;
    const char *name;
    /* Format string of a marker, or empty. */
    const char *format;
    const char *file;
    uint32_t line;
    uint32_t level;
    size_t field_count;
    /* The fields in the order of the payload. */
    const struct lw_field_desc *fields;
};

/* A part of a payload: len bytes. */
struct lw_part {
    const void *data;
    size_t len;
};

/* Records a payload of len bytes, at most 24, that lies in three words. */
void lw_record_short(struct lw_callsite *site, const struct lw_event_desc *event, size_t len, uint64_t first, uint64_t second,
                     uint64_t third);

/* Records a payload of len bytes, at most 16, that lies in two words, and a text with its NUL behind it. */
void lw_record_text(struct lw_callsite *site, const struct lw_event_desc *event, size_t len, uint64_t first, uint64_t second,
                    const char *text);

/* Records a payload given in parts. */
void lw_record_parts(struct lw_callsite *site, const struct lw_event_desc *event, const struct lw_part *parts, size_t count);

/* Whether an event of the callsite is recorded now. */
bool lw_event_enabled(struct lw_callsite *site, const struct lw_event_desc *event);

#ifdef __cplusplus
}
#endif

#endif

#include "lastwords_event.h"
