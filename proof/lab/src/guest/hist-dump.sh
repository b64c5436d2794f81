#!/bin/busybox sh
# The first program of a guest that crashes with histograms. Nothing counts in them after the work is done; then the kernel's text of
# each goes to the first disk, and the kernel panics.
. /prelude
T=/sys/kernel/tracing
O=/t/out
mount -t tracefs tr $T || fail "tracefs"
mkdir -p $O
cd $T || fail "cd"
for n in 1 2 3; do printf '#!/bin/sh\nexit 0\n' > /t/n$n; chmod +x /t/n$n; done

# add INSTANCE EVENT TRIGGER: kernels refuse what they do not know; the truth has no such histogram then.
add() {
    folder=$T
    [ "$1" = top ] || folder=$T/instances/$1
    [ -d "$folder" ] || mkdir "$folder" || fail "instance $1"
    if echo "$3" >> "$folder/events/$2/trigger" 2> /dev/null; then echo "$1 $2" >> /t/events; else echo "refused: $2 $3"; fi
}
KILL=syscalls/sys_enter_kill
WRITE=syscalls/sys_enter_write
KMEM=kmem/kmem_cache_alloc
DD='if comm == "dd"'
add top $KILL 'hist:keys=sig,pid.hex:vals=hitcount,sig,pid.hex:sort=sig,pid if pid == 1'
add top $KILL 'hist:keys=pid:size=128:sort=pid.descending if pid >= 100000'
add top sched/sched_process_exec 'hist:keys=filename:sort=filename if filename ~ "/t/n*"'
add top sched/sched_process_exec 'hist:keys=filename,pid:sort=filename.descending,pid if filename ~ "/t/n*"'
add sizes $WRITE "hist:keys=count.log2:vals=count:sort=count $DD && fd == 1"
add sizes $WRITE "hist:keys=count.buckets=100:vals=hitcount,count.hex:sort=count $DD && fd == 1"
add parts $WRITE "hist:keys=count:vals=count.percent,count.graph:sort=count $DD && fd == 1"
add parts $WRITE "hist:keys=count:vals=hitcount.percent,hitcount.graph,count.hex:sort=count $DD && fd == 1"
add sizes $WRITE "hist:keys=fd:vals=count:nohitcount:sort=fd $DD"
add sizes $WRITE "hist:keys=common_cpu:sort=common_cpu $DD"
add sizes $WRITE "hist:keys=common_timestamp:sort=common_timestamp:clock=mono $DD"
add sizes $WRITE "hist:keys=common_timestamp.usecs,fd:sort=common_timestamp,fd $DD"
add named syscalls/sys_enter_read "hist:name=fds:keys=fd:sort=fd $DD"
add named $WRITE "hist:name=fds:keys=fd:sort=fd $DD"
add names raw_syscalls/sys_enter "hist:keys=id.syscall,common_pid.execname:sort=id,common_pid $DD"
add names $KILL 'hist:keys=common_comm:sort=common_comm if pid == 1'
add names signal/signal_generate 'hist:keys=sig,comm,result:sort=sig,comm if sig == 18'
add symbols $KMEM "hist:keys=call_site.sym:vals=bytes_req:sort=call_site $DD"
add symbols $KMEM "hist:keys=call_site.sym-offset,bytes_req:vals=bytes_alloc:sort=call_site,bytes_req $DD"
add stacks $KMEM "hist:keys=stacktrace:vals=bytes_req $DD"
add stacks $KMEM "hist:keys=bytes_req,stacktrace:sort=hitcount.descending,bytes_req $DD"
echo 'klat u64 lat; int pid' > synthetic_events 2> /dev/null
add actions $KILL 'hist:keys=common_pid:ts0=common_timestamp.usecs,s0=sig,n0=common_cpu if pid == 1'
add actions syscalls/sys_exit_kill 'hist:keys=common_pid:lat=common_timestamp.usecs-$ts0,sig=$s0:onmax($lat).save(ret,common_pid):onmatch(syscalls.sys_enter_kill).klat($lat,common_pid)'
add actions syscalls/sys_exit_kill 'hist:keys=ret,common_pid:lat2=common_timestamp.usecs-$ts0:sort=ret,common_pid:onchange($lat2).save(ret):onmatch(syscalls.sys_enter_kill).trace(klat,$lat2,common_pid)'
add actions synthetic/klat 'hist:keys=pid,lat.log2:sort=pid,lat'
add paused $KILL 'hist:keys=sig:sort=sig if pid == 1'
add empty $KILL 'hist:keys=sig.hex,pid.log2:vals=sig.hex if pid == 7777777'

half() {
    n=0
    while [ $n -lt 13 ]; do
        kill -0 1
        [ $n -lt 7 ] && kill -CONT 1
        n=$((n + 1))
    done
    dd if=/dev/zero of=/dev/null bs=4096 count=10 2> /dev/null
    dd if=/dev/zero of=/dev/null bs=100 count=5 2> /dev/null
    for n in 1 2 2 3 3 3; do "/t/n$n" > /dev/null 2>&1; done
    (kill -0 1; kill -0 1)
}
half
echo 'hist:keys=sig:sort=sig:pause if pid == 1' >> instances/paused/events/$KILL/trigger || fail "pause"
half
n=0
while [ $n -lt 400 ]; do
    kill -0 $((100000 + n)) 2> /dev/null
    n=$((n + 1))
done

sort -u /t/events | while read -r instance event; do
    folder=$T
    name=
    [ "$instance" = top ] || { folder=$T/instances/$instance; name=$instance; }
    echo "# instance: $name"
    echo "# event: $(echo "$event" | tr / :)"
    cat "$folder/events/$event/hist"
    echo
done > $O/kernel
tar c -C /t out > /dev/vda || fail "the disk"
sync
echo "LAB-TRUTH-DONE"
echo c > /proc/sysrq-trigger
