#!/bin/busybox sh
# The first program of the crash kernel: our static program saves the trace out of /proc/vmcore, before anything else, under
# a limit of its memory; what it saved goes to the second disk.
PART="crash kernel: "
. /prelude
[ -s /proc/vmcore ] || fail "no /proc/vmcore"
mkdir -p /t/saved
# alive PID: neither gone nor a zombie
alive() { grep -q '^State:.[^Z]' "/proc/$1/status" 2> /dev/null; }
# limited NAME COMMAND...: at most 64 MB of address space; the program's VmHWM (KB) goes to NAME.peak
limited() {
    name=$1
    shift
    (ulimit -v 65536; exec "$@") > "/t/saved/$name" 2> "/t/saved/$name.errors" &
    job=$!
    peak=0
    while alive "$job"; do
        for pid in $(pidof lastwords); do
            now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2> /dev/null)
            [ -n "$now" ] && peak=$now
        done
        usleep 10000
    done
    wait "$job" || fail "$name: exit status $?: $(tail -n 1 "/t/saved/$name.errors")"
    echo "$peak" > "/t/saved/$name.peak"
}
sed -n 's/^MemTotal:[^0-9]*\([0-9]*\).*/\1/p' /proc/meminfo > /t/saved/memory
# The hook as it ships.
export LASTWORDS_MEMORY_KB=65536 LASTWORDS_CRASH_DIR=/t/saved/crash
limited recover save-trace
mv /t/saved/crash/lastwords-* /t/saved/out || fail "the hook saved nothing: $(cat /t/saved/recover.errors)"
limited report lastwords report /proc/vmcore
limited inspect lastwords inspect --json /proc/vmcore
cut -d ' ' -f 1 /proc/uptime > /t/saved/uptime
tar c -C /t saved > /dev/vdb || fail "the disk"
sync
echo "LAB-CRASH-SAVED"
while :; do sleep 100; done
