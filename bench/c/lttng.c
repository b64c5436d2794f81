/*
 * LTTng-UST, the peer: `lttng` records into the session that the bench has
 * made; `lttng-off` runs into tracepoints that are not enabled.
 */
#include "child.h"

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_provider.h"

#define LOOP_A(function, event)                                                           \
	static void function(uint64_t events)                                             \
	{                                                                                 \
		for (uint64_t i = 0; i < events; i++) {                                   \
			uint64_t number = opaque(i);                                      \
                                                                                          \
			lttng_ust_tracepoint(lastwords_bench, event, (uint32_t)number,    \
					     number ^ 0x5555555555555555);                \
		}                                                                         \
	}

#define LOOP_B(function, event)                                                           \
	static void function(uint64_t events)                                             \
	{                                                                                 \
		for (uint64_t i = 0; i < events; i++) {                                   \
			uint64_t number = opaque(i);                                      \
                                                                                          \
			lttng_ust_tracepoint(lastwords_bench, event, (uint32_t)number,    \
					     number ^ 0x5555555555555555,                 \
					     child_strings[number % 4]);                  \
		}                                                                         \
	}

LOOP_A(loop_a, a)
LOOP_B(loop_b, b)
LOOP_A(loop_off_a, off_a)
LOOP_B(loop_off_b, off_b)

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "lttng-off") == 0) {
		if (lttng_ust_tracepoint_enabled(lastwords_bench, off_a)) {
			fprintf(stderr, "lttng-off: the tracepoint is enabled\n");
			return 1;
		}
		return child_main(argc, argv, loop_off_a, loop_off_b);
	}
	if (!lttng_ust_tracepoint_enabled(lastwords_bench, a) ||
	    !lttng_ust_tracepoint_enabled(lastwords_bench, b)) {
		fprintf(stderr, "lttng: no session has enabled the tracepoints\n");
		return 1;
	}
	return child_main(argc, argv, loop_a, loop_b);
}
