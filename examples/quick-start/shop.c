#include <unistd.h>
#include <lastwords.h>

int main(void)
{
    lw_start("c-shop");
    for (uint64_t id = 1;; id++) {
        LW_EVENT("shop", "order", lw_u64(id), lw_str(customer, "Ada"));
        usleep(1000);
    }
}
