#!/bin/busybox sh
# The guest's first program: does what the scenario says, writes what the kernel itself prints of its trace to the first
# disk, and crashes the kernel. The kernel's command line has lab.scenario and lab.end.
. /prelude
T=/sys/kernel/tracing
mount -t tracefs tr $T || fail "tracefs"
mount -t debugfs d /sys/kernel/debug 2> /dev/null
cd $T || fail "cd"
word() { tr ' ' '\n' < /proc/cmdline | sed -n "s/^$1=//p"; }
SCENARIO=$(word lab.scenario)
END=$(word lab.end)

EVENTS="sched irq kmem syscalls raw_syscalls timer signal task workqueue printk rcu ipi"
# enable FOLDER EVENTS: kernels differ in what they have
enable() { for e in $2; do [ -e "$1/events/$e/enable" ] && echo 1 > "$1/events/$e/enable"; done; }
# instance NAME EVENTS KB
instance() {
    mkdir "instances/$1" || fail "instance $1"
    echo "$3" > "instances/$1/buffer_size_kb"
    enable "instances/$1" "$2"
}
# set_options FOLDER OPTION...: those that the kernel has
set_options() {
    folder=$1
    shift
    for o in "$@"; do [ -e "$folder/options/$o" ] && echo 1 > "$folder/options/$o"; done
}
n=0
# work ROUNDS: processes, system calls, timers; a marker with a number each round
work() {
    last=$((n + $1))
    while [ $n -lt $last ]; do
        ls /proc > /dev/null 2>&1
        cat /proc/self/stat /proc/interrupts | sort | wc > /dev/null
        (sleep 0.01 &)
        echo "marker $n" > $T/trace_marker
        n=$((n + 1))
    done
}

# has TRACER
has() { grep -qw "$1" available_tracers; }
# latency TRACER: it and others that measure. Debian's kernels with PREEMPT_RT have them; on others the events alone are left.
latency() {
    enable . sched
    echo 200000 > osnoise/runtime_us 2> /dev/null && echo 400000 > osnoise/period_us
    echo 200000 > hwlat_detector/width 2> /dev/null && echo 400000 > hwlat_detector/window
    if has osnoise; then instance noise osnoise 64; echo osnoise > instances/noise/current_tracer || fail "osnoise"; fi
    if has hwlat; then instance hardware "" 16; echo hwlat > instances/hardware/current_tracer || fail "hwlat"; fi
    if has "$1"; then echo "$1" > current_tracer || fail "$1"; fi
    work 8
    sleep 1
}

# files FOLDER: what is done with files
files() {
    dd if=/dev/zero of="$1/a" bs=64k count=30 2> /dev/null
    ln -s a "$1/link"; ln "$1/a" "$1/hard"; mkdir "$1/folder"; mv "$1/a" "$1/folder/b"
    truncate -s 100000 "$1/folder/b"; fallocate -l 200000 "$1/c"; chmod 600 "$1/c"; chown 1:1 "$1/c"
    sync; cat "$1/folder/b" "$1/c" > /dev/null; rm "$1/hard"; ls -lR "$1" > /dev/null; df > /dev/null
}
# wide: what makes drivers and subsystems give events
wide() {
    for at in btrfs:nvme0n1 btrfs:nvme1n1 f2fs:nvme0n1 f2fs:nvme1n1 xfs:sda xfs:sdb xfs:sdc ext4:sda ext4:sdb ext4:sdc; do
        kind=${at%:*}; mkdir -p "/t/$at"
        mount -t "$kind" "/dev/${at#*:}" "/t/$at" 2> /dev/null && files "/t/$at"
    done
    mkdir -p /t/share /t/group /t/more
    mount -t 9p -o trans=virtio share /t/share && files /t/share
    mount -t cgroup2 c /t/group && mkdir /t/group/one && echo $$ > /t/group/one/cgroup.procs
    ip link set lo up; ip address add 127.0.0.1/8 dev lo 2> /dev/null
    ip link set eth0 up; ip address add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
    ping -c 2 10.0.2.2 > /dev/null 2>&1; ping -c 1 127.0.0.1 > /dev/null 2>&1
    nc -l -p 5000 > /t/got & sleep 0.3
    dd if=/dev/zero bs=1k count=300 2> /dev/null | nc 127.0.0.1 5000 &
    sleep 1; kill $! 2> /dev/null; echo x | nc -u -w 1 127.0.0.1 7 2> /dev/null
    wget -T 2 -O /dev/null http://10.0.2.2:1/ 2> /dev/null
    for link in wlan0 wlan1; do ip link set $link up 2> /dev/null; done
    ip link add name br0 type bridge 2> /dev/null && ip link set eth0 master br0 && ip link set br0 up
    echo 16M > /sys/block/zram0/disksize && mkswap /dev/zram0 > /dev/null && swapon /dev/zram0
    dd if=/dev/vda of=/dev/null bs=64k count=20 2> /dev/null
    echo 1 > /proc/sys/vm/compact_memory; echo 3 > /proc/sys/vm/drop_caches; echo 4 > /proc/sys/vm/nr_hugepages
    dd if=/dev/cpu/0/msr of=/dev/null bs=8 skip=16 count=1 2> /dev/null
    hwclock > /dev/null 2>&1
    echo 0 > /sys/devices/system/cpu/cpu1/online; echo 1 > /sys/devices/system/cpu/cpu1/online
    timeout 1 cat /dev/video0 > /dev/null 2>&1; timeout 1 cat /dev/snd/timer > /dev/null 2>&1
    rmmod i2c_dev; ulimit -c 0; sh -c 'kill -SEGV $$' 2> /dev/null
    insmod /mod/i2c_dev.ko
    sleep 1
}

[ "$SCENARIO" = boot ] || echo 64 > buffer_size_kb
case $SCENARIO in
nop) enable . "$EVENTS"; work 15 ;;
function) echo 256 > buffer_size_kb; enable . sched/sched_switch; echo function > current_tracer || fail "function"; work 3 ;;
function_graph) echo 256 > buffer_size_kb; enable . "sched/sched_switch irq"; echo function_graph > current_tracer || fail "graph"; work 3 ;;
subbuf)
    if [ -e buffer_subbuf_size_kb ]; then echo 16 > buffer_subbuf_size_kb; fi
    echo 128 > buffer_size_kb
    enable . "$EVENTS"; work 15; echo 1 > snapshot
    mkdir instances/big
    if [ -e instances/big/buffer_subbuf_size_kb ]; then echo 64 > instances/big/buffer_subbuf_size_kb; fi
    enable instances/big "sched kmem"; work 10 ;;
instances)
    enable . "sched irq"
    instance errors "signal irq timer" 32
    instance calls "raw_syscalls" 64
    instance empty "" 16
    work 8; echo marked > instances/errors/trace_marker ;;
snapshot) enable . "$EVENTS"; work 15; echo 1 > snapshot; instance held "sched kmem" 32; work 5; echo 1 > instances/held/snapshot; work 5 ;;
all) echo 512 > buffer_size_kb; echo 1 > events/enable; echo 0 > events/ftrace/enable 2> /dev/null; work 8 ;;
options)
    set_options . record-tgid stacktrace; echo 0 > options/irq-info
    enable . "sched irq"
    instance latency sched 32; set_options instances/latency latency-format
    instance verbose "sched irq" 32; set_options instances/verbose latency-format verbose
    instance wordy sched 32; set_options instances/wordy verbose
    instance bare sched 32; echo 0 > instances/bare/options/context-info
    instance symbols sched 32; set_options instances/symbols sym-offset sym-addr stacktrace
    instance groups sched 32; set_options instances/groups record-tgid
    instance digits sched 32; set_options instances/digits hex
    instance binary "sched irq" 32; set_options instances/binary bin
    instance files "sched syscalls" 64; set_options instances/files userstacktrace sym-userobj
    instance "files-too" sched 32; set_options instances/files-too userstacktrace sym-userobj sym-addr
    instance parentless sched 32; echo 0 > instances/parentless/options/print-parent; echo 0 > instances/parentless/options/annotate
    work 6 ;;
probes)
    # Kernels differ in what they take; what they refuse is left out.
    {
        echo 'p:kp1 do_sys_openat2 dfd=%di:s32 name=+0(%si):ustring flags=%dx:x64' > kprobe_events
        echo 'r:kr1 do_sys_openat2 ret=$retval' >> kprobe_events
        echo 'p:kp2 vfs_read file=%di:x64 count=%dx:u32 a=+0(%di):x8[4] c=$comm st=$stack0:symbol' >> kprobe_events
        echo 'p:own/kp3 vfs_write b=%di:b4@2/32 s=%di:symbol ch=+0(%si):char' >> kprobe_events
        echo 'f:fp1 vfs_open $arg*' >> dynamic_events
        echo 'f:fp2 vfs_open%return r=$retval' >> dynamic_events
        echo 'e:ep1 sched/sched_switch n=$next_pid:s32 c=$next_comm:string' >> dynamic_events
        echo 'p:up1 /bin/busybox:0x2000' >> uprobe_events
        echo 'wl u64 lat; pid_t pid; char c[16]; long arr; char s[]' > synthetic_events
        echo 'hist:keys=pid:ts0=common_timestamp.usecs' > events/sched/sched_waking/trigger
        echo 'hist:keys=next_pid:lat=common_timestamp.usecs-$ts0:onmatch(sched.sched_waking).trace(wl,$lat,next_pid,next_comm,$lat,next_comm)' > events/sched/sched_switch/trigger
        for e in kprobes own fprobes eprobes uprobes synthetic; do echo 1 > events/$e/enable; done
        printf '\001\000\000\000abcdefgh' > trace_marker_raw
        work 5
        printf '\002\000\000\000xyz' > trace_marker_raw
        echo stacktrace > events/sched/sched_waking/trigger
        echo 1 > options/userstacktrace
        work 2
        echo 0 > options/userstacktrace
    } 2> /dev/null ;;
clocks)
    enable . "sched irq"; echo mono > trace_clock
    for clock in local global counter uptime perf mono_raw boot tai x86-tsc; do
        name=$(echo "$clock" | tr -d '_-')
        if grep -q "$clock" trace_clock; then instance "$name" sched 16; echo "$clock" > "instances/$name/trace_clock"; fi
    done
    work 8 ;;
arguments)
    echo 256 > buffer_size_kb; enable . sched/sched_switch
    [ -e options/func-args ] && echo 1 > options/func-args
    echo function > current_tracer || fail "function"
    [ -e options/func-args ] && echo 1 > options/func-args
    work 3 ;;
graph-options)
    echo 256 > buffer_size_kb; enable . "sched/sched_switch irq"
    echo function_graph > current_tracer || fail "graph"
    set_options . funcgraph-proc funcgraph-tail funcgraph-abstime funcgraph-retval funcgraph-retaddr funcgraph-args funcgraph-overrun
    work 3 ;;
stacks)
    echo 'do_sys_open* vfs_*' > set_ftrace_filter; echo function > current_tracer || fail "function"
    set_options . func_stack_trace; work 5 ;;
modules)
    for module in $(cat /scenario-modules); do insmod "/mod/$module.ko" || fail "insmod $module"; done
    echo 256 > buffer_size_kb
    echo '*:mod:xfs *:mod:btrfs' > set_ftrace_filter; echo function > current_tracer || fail "function"
    [ -e options/func-args ] && echo 1 > options/func-args
    enable . "xfs btrfs kvm sched/sched_switch"
    mkdir /disk
    # Neither finds its file system; both look for it.
    work 1; mount -t xfs /dev/vdb /disk 2> /dev/null; mount -t btrfs /dev/vdb /disk 2> /dev/null; work 2 ;;
wide)
    # Drivers without a device may refuse; those that begin give their events.
    for module in $(cat /scenario-modules); do insmod "/mod/$module.ko" 2> /dev/null; done
    sleep 2
    echo 2048 > buffer_size_kb
    echo 1 > events/enable; echo 0 > events/ftrace/enable 2> /dev/null
    instance rare "" 4096
    echo 1 > instances/rare/events/enable
    for e in sched irq irq_vectors kmem rcu timer syscalls raw_syscalls preemptirq page_ref_count lock workqueue signal ipi task \
        mmap mmap_lock percpu maple_tree vmalloc tlb exceptions console csd cgroup writeback filemap; do
        [ -e "instances/rare/events/$e/enable" ] && echo 0 > "instances/rare/events/$e/enable"
    done
    wide
    work 5 ;;
unplugged) echo 1024 > buffer_size_kb; enable . "$EVENTS"; work 5; echo 0 > /sys/devices/system/cpu/cpu2/online || fail "offline"; work 10 ;;
latency) latency wakeup_rt ;;
timerlat)
    enable . "sched osnoise"
    if has timerlat; then echo timerlat > current_tracer || fail "timerlat"; fi
    work 3; sleep 1 ;;
block)
    enable . block
    for disk in vda vdb; do echo 1 > /sys/block/$disk/trace/enable || fail "block trace"; done
    echo blk > current_tracer || fail "blk"
    instance plain block 32
    work 3
    dd if=/dev/zero of=/dev/vdb bs=64k count=20 2> /dev/null; sync
    dd if=/dev/vdb of=/dev/null bs=4k count=40 skip=400 2> /dev/null
    echo "a word of ours" > /sys/kernel/debug/block/vdb/msg 2> /dev/null ;;
block-classic)
    echo 1 > /sys/block/vdb/trace/enable || fail "block trace"
    echo blk > current_tracer || fail "blk"
    echo 1 > options/blk_classic
    dd if=/dev/zero of=/dev/vdb bs=64k count=20 2> /dev/null; sync ;;
mmiotrace)
    # What the second disk's driver does to its device as it begins again.
    echo mmiotrace > current_tracer || fail "mmiotrace"
    device=$(basename "$(readlink -f /sys/block/vdb/device/..)")
    driver=/sys/bus/pci/drivers/virtio-pci
    echo "$device" > $driver/unbind
    echo "$device" > $driver/bind || fail "bind $device"
    work 2 ;;
sizes)
    cpus=$(ls -d per_cpu/cpu* | wc -l)
    echo 65536 > per_cpu/cpu1/buffer_size_kb
    set_options . record-tgid event-fork
    enable . "$EVENTS"
    instance tiny "sched irq" 1
    mkdir instances/uneven; n=0
    while [ $n -lt "$cpus" ]; do echo $((4 + 24 * n)) > instances/uneven/per_cpu/cpu$n/buffer_size_kb; n=$((n + 1)); done
    n=0; enable instances/uneven "sched timer"
    instance masked sched 32; echo 5 > instances/masked/tracing_cpumask
    instance mine "sched syscalls" 32; echo $$ > instances/mine/set_event_pid; set_options instances/mine event-fork
    instance refusing sched 8; echo 0 > instances/refusing/options/overwrite
    work 5
    instance paused sched 32; work 2; echo 0 > instances/paused/tracing_on
    work 5 ;;
boot) work 10 ;;
user-events)
    echo 'u:lw_kept u32 id' >> dynamic_events || fail "user events: the kernel needs CONFIG_USER_EVENTS"
    mkfifo /t/in
    writer < /t/in > /t/said &
    exec 3> /t/in
    wait_for() { for n in $(seq 600); do grep -q "$1" /t/said && return; sleep 0.1; done; fail "no $1 of the writer"; }
    wait_for ready
    enable . "user_events user_events_multi sched/sched_process_exit"
    instance texts user_events_multi 64
    enable instances/texts "user_events/lw_text user_events/lw_arrays"
    work 2; echo >&3; wait_for burst; work 2 ;;
live-crash)
    echo 16 > buffer_size_kb
    instance errors "signal irq" 16
    # From 6.10 on an instance may be named; before, the top level alone is printed.
    echo "1,errors" > /proc/sys/kernel/ftrace_dump_on_oops 2> /dev/null || echo 1 > /proc/sys/kernel/ftrace_dump_on_oops
    enable . "sched irq kmem timer signal task workqueue rcu"; work 15 ;;
*) enable . "$EVENTS"; work 15 ;;
esac

cat /proc/sys/kernel/ftrace_dump_on_oops > /t/dump_on_oops
echo 1 > /proc/sys/kernel/sysrq
if [ "$END" = live ]; then
    # Work and markers go on to the last instant, each on a CPU of its own, so that the markers' ring has them in a row.
    n=$n taskset 1 sh -c 'while :; do echo "marker $n"; n=$((n + 1)); done' > trace_marker &
    taskset 2 sh -c 'while :; do ls /proc; done' > /dev/null 2>&1 &
    sleep 0.5
    echo "LAB-CRASHES"
    echo c > /proc/sysrq-trigger
    fail "no crash"
fi

sleep 0.2
echo 0 > tracing_on
for i in instances/*; do [ -d "$i" ] && echo 0 > "$i/tracing_on"; done
sleep 0.2
# truth FOLDER NAME: what the kernel prints
truth() {
    o=/t/truth/$2
    mkdir -p "$o"
    for f in current_tracer trace_clock trace_options buffer_size_kb buffer_subbuf_size_kb trace snapshot; do
        [ -e "$1/$f" ] && cat "$1/$f" > "$o/$f" 2> /dev/null
    done
    for s in raw fields latency-format; do
        # function_graph has no such forms of its own, and forms in bytes come before them.
        if grep -q 0 "$1/options/$s" 2> /dev/null && ! grep -q graph "$1/current_tracer" && ! grep -q 1 "$1/options/hex" "$1/options/bin"; then
            echo 1 > "$1/options/$s"
            cat "$1/trace" > "$o/trace.$s"
            echo 0 > "$1/options/$s"
        fi
    done
    for c in 0 1 2 3 4 5 6 7; do
        [ -e "$1/per_cpu/cpu$c" ] || continue
        mkdir -p "$o/cpu$c"
        for f in trace stats snapshot; do [ -e "$1/per_cpu/cpu$c/$f" ] && cat "$1/per_cpu/cpu$c/$f" > "$o/cpu$c/$f" 2> /dev/null; done
    done
}
truth . top
for i in instances/*; do [ -d "$i" ] && truth "$i" "${i#instances/}"; done
mkdir /t/truth/system
for f in saved_cmdlines printk_formats available_tracers; do cat $f > /t/truth/system/$f; done
uname -r > /t/truth/system/release
cat /proc/kallsyms > /t/truth/system/kallsyms
dmesg > /t/truth/system/dmesg
# At its end it waits for more.
cat /dev/kmsg > /t/truth/system/kmsg &
reader=$!
sleep 1
kill $reader
echo $((n - 1)) > /t/truth/system/last_marker
cat events/*/*/format > /t/truth/system/formats
if [ "$END" = kcore ]; then
    mkdir /t/truth/kcore
    lastwords report /proc/kcore > /t/truth/kcore/report 2> /t/truth/kcore/errors
    lastwords inspect --json /proc/kcore > /t/truth/kcore/inspect 2>> /t/truth/kcore/errors
fi
tar c -C /t truth > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
if [ "$END" = kdump ]; then
    [ "$(cat /sys/kernel/kexec_crash_size)" -gt 0 ] || fail "no memory for a crash kernel"
    kexec -p -s /crash/vmlinuz --initrd=/crash/initramfs \
        --command-line="console=ttyS0 nr_cpus=1 irqpoll reset_devices loglevel=4 panic=0" || fail "kexec -p"
    [ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] || fail "the crash kernel is not loaded"
    echo "LAB-CRASH-KERNEL-LOADED"
fi
sleep 0.2
echo c > /proc/sysrq-trigger
fail "no crash"
