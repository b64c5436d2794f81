/* A library with a function and a static probe for `record --uprobe`, and with -DMAIN the program that calls it. The notes have the form
 * of <sys/sdt.h>, version 3: the probe is in two places and has a counter. */
#ifdef MAIN
int lab_step(int number);

int main(void) {
    int sum = 0;
    for (int number = 1; number <= 5; number++)
        sum += lab_step(number);
    return sum != 30;
}
#else
volatile unsigned short lab_done_semaphore __attribute__((section(".probes"), visibility("hidden"), used));

#define DONE(argument)                                                          \
    __asm__ volatile("990: nop\n"                                               \
                     ".pushsection .note.stapsdt,\"\",\"note\"\n"               \
                     ".balign 4\n"                                              \
                     ".4byte 992f-991f, 994f-993f, 3\n"                         \
                     "991: .asciz \"stapsdt\"\n"                                \
                     "992: .balign 4\n"                                         \
                     "993: .8byte 990b, _.stapsdt.base, lab_done_semaphore\n"   \
                     ".asciz \"lab\"\n"                                         \
                     ".asciz \"done\"\n"                                        \
                     ".asciz \"-4@%0\"\n"                                       \
                     "994: .balign 4\n"                                         \
                     ".popsection\n"                                            \
                     ".ifndef _.stapsdt.base\n"                                 \
                     ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
                     ".weak _.stapsdt.base\n"                                   \
                     ".hidden _.stapsdt.base\n"                                 \
                     "_.stapsdt.base: .space 1\n"                               \
                     ".size _.stapsdt.base, 1\n"                                \
                     ".popsection\n"                                            \
                     ".endif\n"                                                 \
                     :                                                          \
                     : "r"(argument))

int lab_step(int number) {
    int result = number * 2;
    if (lab_done_semaphore) {
        if (number % 2)
            DONE(result);
        else
            DONE(number);
    }
    return result;
}
#endif
