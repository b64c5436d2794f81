/*
 * lastwords from C: the session of `bench/src/contenders/lastwords.rs`, through
 * the macros of lastwords.h.
 */
#include "child.h"

#include <lastwords.h>

static void loop_a(uint64_t events)
{
	for (uint64_t i = 0; i < events; i++) {
		uint64_t number = opaque(i);

		LW_EVENT("bench", "a", lw_u32(number, (uint32_t)number),
			 lw_u64(value, number ^ 0x5555555555555555));
	}
}

static void loop_b(uint64_t events)
{
	for (uint64_t i = 0; i < events; i++) {
		uint64_t number = opaque(i);

		LW_EVENT("bench", "b", lw_u32(number, (uint32_t)number),
			 lw_u64(value, number ^ 0x5555555555555555),
			 lw_str(text, child_strings[number % 4]));
	}
}

int main(int argc, char **argv)
{
	struct lw_channel channel = {
		.name = "bench",
		.sub_buffer_size = 64 * 1024,
		.sub_buffers = 4,
		.contexts = LW_CONTEXT_NONE,
	};
	struct lw_builder *builder = lw_builder_new("bench");
	struct lw_session *session = NULL;
	int status;

	if (builder && lw_builder_channel(builder, &channel) == 0)
		session = lw_builder_start(builder);
	if (!session) {
		fprintf(stderr, "lastwords-c: %s\n", lw_error());
		return 1;
	}
	status = child_main(argc, argv, loop_a, loop_b);
	lw_session_end(session);
	return status;
}
