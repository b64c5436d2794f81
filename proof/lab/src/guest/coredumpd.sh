#!/bin/busybox sh
# Root's side of a guest whose cores go to systemd-coredump: `sh /script WORD`. Does what the units of systemd 262 do:
# systemd-coredumpd.service and systemd-coredump-register.service (the socket), systemd-coredump.socket (the pipe).
P=/proc/sys/kernel/core_pattern
K=/run/systemd/coredumpd/kernel
C=/var/lib/systemd/coredump
bad=0

wrong() {
    echo "$*"
    bad=1
}

# until_true SECONDS COMMAND...: waits until a command succeeds
until_true() {
    until=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt $until ] || { wrong "not in time: $*"; return; }
        sleep 0.2
    done
}

# core: the one core that is kept, without its owner and mode, which systemd gives it
core() { attack look $C/core.attack.* 2> /dev/null | cut -d ' ' -f 1-5; }
is_whole() { case $(core) in whole*) ;; *) return 1 ;; esac; }

# dies NAME: a process of user 1000 dies; its core arrives whole, and is as large as the first one was
dies() {
    rm -f $C/core.*
    (cd /tmp && attack as 1000 attack die) 2> /dev/null
    until_true 30 is_whole
    [ -e /tmp/truth ] || core > /tmp/truth
    [ "$(core)" = "$(cat /tmp/truth)" ] || wrong "the core is $(core), the first one $(cat /tmp/truth)"
    echo "$1: $(core) $(ls $C)"
    [ $bad = 0 ] || tail -n 20 /tmp/manager /tmp/activate
}

start_socket() {
    systemd-coredump --check-requirements || wrong "no sockets for cores: kernel $(uname -r)"
    mkdir -p ${K%/*}
    systemd-coredump --manager > /tmp/manager 2>&1 < /dev/null &
    until_true 20 test -S $K
    systemd-sysctl --strict --verify --save=60-coredump --inline "kernel.core_pattern=@@$K" || bad=1
}

prepare() {
    mkdir -p /run/systemd /var/lib/systemd/coredump /etc/systemd /usr/lib/systemd /usr/lib/sysctl.d /sys/fs/cgroup
    mount -t cgroup2 c /sys/fs/cgroup || bad=1
    cp /bin/systemd-coredump /usr/lib/systemd/
    cp /50-coredump.conf /usr/lib/sysctl.d/
    chmod 1777 /tmp
    printf 'user:x:1000:1000::/tmp:/bin/sh\nsystemd-coredump:x:980:980::/:/bin/false\n' >> /etc/passwd
    printf 'root:x:0:\nuser:x:1000:\nsystemd-coredump:x:980:\n' > /etc/group
    printf '[Coredump]\nCompress=no\nStorage=external\n' > /etc/systemd/coredump.conf
    echo 0 > /proc/sys/kernel/randomize_va_space
    touch /tmp/activate
    # systemd-coredump wants a name of the machine.
    hostname guest
    uname -r
}

by_socket() {
    start_socket
    dies "by the socket"
}

# The helper cannot stand before a socket. It says so, names the way, and changes nothing.
refused() {
    if lastwords core-helper install > /tmp/said 2>&1; then wrong "installed before a socket"; fi
    cat /tmp/said
    grep -q 'systemctl disable --now systemd-coredumpd.service' /tmp/said || wrong "no way is named"
    [ "$(cat $P)" = "@@$K" ] || wrong "core_pattern is $(cat $P)"
    lastwords doctor | grep -A 2 'cores' > /tmp/said
    cat /tmp/said
    dies "by the socket, after install was refused"
}

# What the message says: both services are stopped, which sets the pattern of the pipe again.
by_pipe() {
    systemd-sysctl --revert=60-coredump --prefix=/kernel/core_pattern || bad=1
    kill "$(pidof systemd-coredump)" || bad=1
    rm -f $K
    cat $P
    systemd-socket-activate --accept --seqpacket --listen=/run/systemd/coredump /usr/lib/systemd/systemd-coredump > /tmp/activate 2>&1 < /dev/null &
    until_true 20 test -S /run/systemd/coredump
    dies "by the pipe"
    cat $P > /tmp/pipe
}

has_copy() { ls /dev/shm/lastwords-0/in-heap.dead-* > /dev/null 2>&1; }
records() { lastwords report --last 1 --pid "$1" 2> /dev/null | grep -q order; }
has_core() { ls $C/core.heap.* > /dev/null 2>&1; }

with_helper() {
    lastwords core-helper install || bad=1
    cat $P
    dies "by the pipe, after the helper"
    ulimit -c unlimited
    heap &
    until_true 30 records $!
    kill -ABRT $!
    until_true 60 has_copy
    until_true 60 has_core
    lastwords report --last 1 --strict /dev/shm/lastwords-0/in-heap.dead-* || bad=1
    ls -l $C
}

back() {
    lastwords core-helper remove || bad=1
    [ "$(cat $P)" = "$(cat /tmp/pipe)" ] || wrong "core_pattern is $(cat $P)"
    start_socket
    dies "by the socket again"
}

"$1"
exit $bad
