#!/bin/busybox sh
# The first program of a guest with ramoops, booted twice with the same memory: the first boot fills the console and the
# messages of programs, and panics; the second prints what the kernel itself finds, as base64.
. /prelude
mount -t pstore -o kmsg_bytes=100000 p /sys/fs/pstore || fail "pstore"
rmmod ramoops || fail "rmmod"
insmod /mod/ramoops.ko $(tr ' ' '\n' < /proc/cmdline | sed -n 's/^lab.ramoops=//p' | tr ',' ' ') || fail "ramoops"
if [ -n "$(ls /sys/fs/pstore)" ]; then
    for file in /sys/fs/pstore/*; do
        echo "LAB-FILE ${file##*/}"
        base64 "$file"
    done
    echo "LAB-SECOND-DONE"
    while :; do sleep 100; done
fi
n=0
while [ $n -lt 500 ]; do
    echo "<4>line $n of the lab, $((n * 7919))" > /dev/kmsg
    echo "message $n $((n * 104729))" > /dev/pmsg0
    n=$((n + 1))
done
echo "LAB-FIRST-DONE"
sleep 1
echo c > /proc/sysrq-trigger
fail "no panic"
