#!/bin/busybox sh
# The guest's first program for `why`: asks it how the last boot ended, records in persistent memory, and ends the machine as the line of
# this boot in /plan says: CAUSE VARIANT PAUSE KEEP. The host does what a guest cannot.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /etc /pmem /t
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp NO_COLOR=1
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mount -t tmpfs t /run
mount -t pstore p /sys/fs/pstore
dmesg -n 4
hostname lab
echo 'root:x:0:0:root:/tmp:/bin/sh' > /etc/passwd
fail() { echo "LAB-FAILED: $*"; while :; do sleep 100; done; }
word() { tr ' ' '\n' < /proc/cmdline | sed -n "s/^$1=//p"; }
while read -r module; do
    case $module in
    softdog) continue ;;
    ramoops) more="mem_address=$(word lab.ramoops) mem_size=0x100000 record_size=0x20000 ecc=1 max_reason=5" ;;
    *) more= ;;
    esac
    insmod "/mod/$module.ko" $more || fail "insmod $module"
done < /modules
. /persistent
await /dev/pmem0
readlink -f /sys/class/block/pmem0/device | grep -q pfn || give pfn0.0 nd_pmem
mount -t ext4 -o dax=always /dev/pmem0 /pmem || fail "mount of /dev/pmem0"

# line BOOT: its line of the plan
line() { sed -n "$(($1 + 1))p" /plan; }
boot=$(cat /pmem/boot 2> /dev/null || echo 0)
if [ "$boot" -gt 0 ]; then
    set -- $(line $((boot - 1)))
    more=
    if [ "$2" = amd ]; then
        # This line only real machines have.
        echo '[    0.512345] x86/amd: Previous system reset reason [0x02000800]: hardware watchdog timer expired' > /run/log
        more="--kernel-log /run/log"
    fi
    lastwords why --json $more /pmem/session > /run/why 2> /run/why.errors || fail "why: $(cat /run/why.errors)"
    echo "WHY-SAID $((boot - 1)) $(tr -d '\n' < /run/why) WHY-END"
fi
set -- $(line "$boot")
[ $# = 4 ] || { echo "WHY-DONE"; while :; do sleep 100; done; }
cause=$1 variant=$2 pause=$3
[ "$4" = clean ] && rm -f /sys/fs/pstore/*
rm -f /pmem/session
echo $((boot + 1)) > /pmem/boot
sync
lab why-here /pmem/session > /run/recording &
recorder=$!
until grep -q WHY-RECORDS /run/recording; do
    [ -d /proc/$recorder ] || fail "the recorder ended"
    usleep 50000
done

# symbol NAME: its address
symbol() { awk -v name="$1" '$3 == name { print $1; exit }' /proc/kallsyms; }
# oops: the host changes a function of the kernel, and the guest calls it
oops() {
    code=$(sed -n 's/^ *\([0-9a-f]*\)-.*Kernel code$/\1/p' /proc/iomem)
    echo "WHY-PATCH $boot $1 $code $(symbol _text) $(symbol __x64_sys_getpriority) WHY-END"
    until [ "$(devmem "$(word lab.mailbox)" 32)" = "$(printf '0x%08X' $((boot + 1)))" ]; do usleep 50000; done
    (renice -n 1 1)
}
kernel() { echo "$2" > "/proc/sys/$1"; }
kernel kernel/panic 1
usleep $((pause * 1000))
echo "WHY-ENDS $boot $cause $variant."
case $cause-$variant in
panic-sysrq) echo c > /proc/sysrq-trigger ;;
panic-init) exit 7 ;;
oops-*)
    kernel kernel/panic_on_oops 1
    oops "$variant"
    ;;
hung-*)
    kernel kernel/hung_task_check_interval_secs 1
    kernel kernel/hung_task_panic 1
    kernel kernel/hung_task_timeout_secs "$variant"
    # Not the file system of the session, whose application is to live on.
    dd if=/dev/zero of=/run/image bs=1M count=8 2> /dev/null
    mke2fs -F /run/image > /run/image.said 2>&1 || fail "mke2fs: $(cat /run/image.said)"
    mount -t ext4 -o loop /run/image /t || fail "mount of an image"
    fsfreeze --freeze /t
    touch /t/never
    ;;
watchdog-*)
    insmod /mod/softdog.ko soft_panic=1 soft_margin="$variant" || fail "softdog"
    exec 3> /dev/watchdog
    ;;
memory-tail)
    kernel vm/panic_on_oom 1
    tail /dev/zero
    ;;
memory-files)
    kernel vm/panic_on_oom 2
    mount -t tmpfs -o size=4g t /t
    dd if=/dev/zero of=/t/file bs=1M
    ;;
memory-deadlock)
    for process in /proc/[0-9]*; do echo -1000 > "$process/oom_score_adj"; done 2> /dev/null
    mount -t tmpfs -o size=4g t /t
    dd if=/dev/zero of=/t/file bs=1M
    ;;
reboot-oopsed)
    kernel kernel/panic_on_oops 0
    oops null
    sleep 1
    reboot -f
    ;;
reboot-*) $variant -f ;;
killed-*)
    kill -9 $recorder
    wait $recorder
    usleep $((variant * 1000))
    echo c > /proc/sysrq-trigger
    ;;
esac
while :; do sleep 100; done
