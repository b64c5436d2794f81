#include <chrono>
#include <string>
#include <thread>
#include <lastwords.h>

int main()
{
    lw_start("cpp-shop");
    const std::string customer = "Ada";
    for (uint64_t id = 1;; id++) {
        LW_EVENT("shop", "order", lw_u64(id), lw_str(customer, customer.c_str()));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}
