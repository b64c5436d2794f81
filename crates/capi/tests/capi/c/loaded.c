/*
 * With LIBRARY, a program that loads that library and does not know what it records with. Else the
 * library, to which two lines were added.
 */
#include <stdio.h>
#include <unistd.h>

#ifdef LIBRARY
#include <dlfcn.h>

int main(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void (*charge)(unsigned long);

    if (!library)
        return 3;
    *(void **)&charge = dlsym(library, "charge");
    for (unsigned long id = 1; charge; id++) {
        charge(id);
        usleep(1000);
    }
    return 4;
}
#else
#include <lastwords.h>

void charge(unsigned long id);
void charge(unsigned long id)
{
    if (id == 1)
        lw_start("payment");
    LW_EVENT("payment", "charge", lw_u64(id), lw_str(currency, "EUR"));
}
#endif
