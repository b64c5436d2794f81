#include <stdio.h>
#include <unistd.h>
#include <lastwords.h>

int main(void)
{
    struct lw_session *session = lw_session_begin("c-shop");

    if (!session) {
        fprintf(stderr, "%s\n", lw_error());
        return 1;
    }
    for (uint64_t id = 1;; id++) {
        LW_EVENT("shop", "order", lw_u64(id), lw_str(customer, "Ada"));
        usleep(1000);
    }
}
