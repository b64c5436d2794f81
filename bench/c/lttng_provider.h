/*
 * The tracepoint provider of the LTTng-UST contender. `a` and `b` are enabled
 * by the bench's session, `off_a` and `off_b` never are.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER lastwords_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_provider.h"

#if !defined(LASTWORDS_BENCH_LTTNG_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LASTWORDS_BENCH_LTTNG_PROVIDER_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT_CLASS(
	lastwords_bench, payload_a,
	LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint32_t, number, number)
		lttng_ust_field_integer(uint64_t, value, value)
	)
)

LTTNG_UST_TRACEPOINT_EVENT_CLASS(
	lastwords_bench, payload_b,
	LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, value, const char *, text),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint32_t, number, number)
		lttng_ust_field_integer(uint64_t, value, value)
		lttng_ust_field_string(text, text)
	)
)

LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(lastwords_bench, payload_a, lastwords_bench, a,
	LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, value))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(lastwords_bench, payload_a, lastwords_bench, off_a,
	LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, value))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(lastwords_bench, payload_b, lastwords_bench, b,
	LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, value, const char *, text))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(lastwords_bench, payload_b, lastwords_bench, off_b,
	LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, value, const char *, text))

#endif

#include <lttng/tracepoint-event.h>
