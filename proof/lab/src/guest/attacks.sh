#!/bin/busybox sh
# Root's side of a guest with an attacking user (id 1000): `sh /script WORD` prepares, attacks or judges. The attacks themselves are
# `attack`'s. What the kernel does without the helper is the truth: size, owner and mode of each core.
H=/tmp/home
T=/tmp/truth
V=/roots
bad=0

wrong() {
    echo "$*"
    bad=1
}

# user COMMAND...: as the attacker, in its folder
user() { (cd $H && attack as 1000 "$@"); }

# fresh FOLDER: a new folder of the attacker's
fresh() {
    rm -rf "${H:?}/$1"
    user mkdir "$H/$1"
}

# arrives FILE TRUTH SECONDS: waits until a core is as the kernel itself has written one
arrives() {
    left=$(($3 * 5))
    while [ "$(attack look "$1" 2> /dev/null)" != "$(cat "$2")" ]; do
        left=$((left - 1))
        [ $left -gt 0 ] || { wrong "$1: $(attack look "$1" 2>&1), without the helper: $(cat "$2")"; return; }
        sleep 0.2
    done
}

# die_in FOLDER COMMAND...: the attacker runs a command in a folder of its own
die_in() {
    folder=$1
    shift
    fresh "$folder"
    (cd $H/"$folder" && attack as 1000 "$@") 2> /dev/null
}

helpers() { ps -o args | grep -c '[c]ore-helper \(file\|pipe\)'; }
lines() { dmesg | grep -c 'lastwords core-helper'; }

# listing: every file and folder of the machine that is root's own
listing() {
    find / -xdev \( -path /tmp -o -path '/run/lastwords*' -o -path /var/crash -o -path /dev -o -path /proc -o -path /sys -o -path /script \) -prune -o -print | sort | while read -r path; do
        sum=
        [ -f "$path" ] && [ ! -L "$path" ] && sum=$(md5sum < "$path")
        echo "$(stat -c '%n %F %U %G %a %s %y %z' "$path") $sum"
    done
}

prepare() {
    insmod /mod/fuse.ko
    chmod 1777 /tmp
    chmod 666 /dev/fuse
    echo 'user:x:1000:1000:user:/tmp/home:/bin/sh' >> /etc/passwd
    mkdir -p $H $T $V /etc/cron.d /root /var/crash /var/lib /run
    chown 1000:1000 $H
    chmod 1777 /var/crash
    chmod 700 /root
    echo precious > $V/victim
    chmod 600 $V/victim
    cp /bin/attack /bin/waits
    chmod 4755 /bin/waits
    # The same program has the same core each time, and numbers of processes come around soon.
    echo 0 > /proc/sys/kernel/randomize_va_space
    echo 700 > /proc/sys/kernel/pid_max
    echo core > /proc/sys/kernel/core_pattern
    die_in whole attack die
    die_in small attack die 0
    fresh slow
    user attack slow $H/slow 1 > $T/said 2>&1 &
    until [ -s $T/said ]; do sleep 0.1; done
    killall attack
    for name in whole/core small/core slow/0/core; do
        attack look $H/$name > $T/"${name%%/*}" || bad=1
        grep -q '^whole.*user 1000 group 1000 mode 100600' $T/"${name%%/*}" || bad=1
    done
    head $T/*
    lastwords core-helper install || bad=1
    # What the helper keeps for itself is there after its first run.
    die_in first attack die
    arrives $H/first/core $T/whole 20
    ended
    listing > /tmp/before
    wc -l < /tmp/before
}

# Cores that are smaller than a pipe, one after the other, and one that is not. A link is in the place of one.
small() {
    for at in 1 2 3 4 5; do
        die_in small$at attack die 0
        arrives $H/small$at/core $T/small 20
        [ $bad = 0 ] || return
    done
    fresh whole
    user ln -s /etc/cron.d/planted $H/whole/core
    (cd $H/whole && attack as 1000 attack die) 2> /dev/null
    arrives $H/whole/core $T/whole 20
}

# Many processes die at once, and each has its core. The log has a limited number of lines.
storm() {
    count=24
    before=$(lines)
    echo 1 > /proc/sys/kernel/core_uses_pid
    die_in storm attack storm $count || bad=1
    left=300
    while [ "$(ls $H/storm | wc -l)" != $count ] && [ $left -gt 0 ]; do
        left=$((left - 1))
        sleep 0.2
    done
    ended
    cores=0
    for core in $H/storm/core.*; do
        [ "$(attack look "$core")" = "$(cat $T/small)" ] && cores=$((cores + 1))
    done
    echo 0 > /proc/sys/kernel/core_uses_pid
    said=$(($(lines) - before))
    [ $cores = $count ] || wrong "cores: $cores of $count"
    [ $said -le 20 ] || wrong "lines in the log: $said"
    echo "cores: $cores; lines in the log: $said"
}

# More processes than helpers may work at once have mapped a file whose reads never end. Their cores arrive, and that of the next.
slow() {
    fresh slow
    user attack slow $H/slow 6 > /tmp/said 2>&1 &
    for at in 0 1 2 3 4 5; do
        arrives $H/slow/$at/core $T/slow 45
        [ $bad = 0 ] || break
    done
    die_in next attack die
    arrives $H/next/core $T/whole 45
    cat /tmp/said
    # Ends the file system, and with it all reads.
    killall attack
    ended
}

# A setuid program dies of a signal of its user's. Its core is root's, and the pattern names no place of root's.
of_setuid() {
    echo 2 > /proc/sys/fs/suid_dumpable
    fresh setuid
    user ln -s /etc/cron.d/planted $H/setuid/core
    (cd $H/setuid && attack as 1000 attack setuid /bin/waits) || bad=1
    ended || bad=1
    echo 0 > /proc/sys/fs/suid_dumpable
    [ -L $H/setuid/core ] || wrong "the core of a setuid program: $(ls -l $H/setuid)"
}

# The part that reads the memory of a dying process can open no file and make no connection: by Landlock, and by seccomp.
sandbox() { attack probe lastwords core-helper search || bad=1; }

# ended: waits until no helper is at work
ended() {
    left=200
    while [ "$(helpers)" != 0 ]; do
        left=$((left - 1))
        [ $left -gt 0 ] || { wrong "helpers at work: $(ps -o pid,args | grep '[c]ore-helper')"; return 1; }
        sleep 0.2
    done
}

# The number of a process that is being dumped goes to a setuid program in a folder of root's, while the helper works.
reuse() {
    rm -f /tmp/said
    user attack reuse /etc/cron.d /bin/waits > /tmp/said 2>&1 &
    until [ -s /tmp/said ]; do sleep 0.1; done
    cat /tmp/said
    grep -q '^number .* went to' /tmp/said || bad=1
    ended
    ls -ln /etc/cron.d
    [ ! -e /etc/cron.d/core ] || wrong "a core in root's folder"
    killall attack
}

# Root in a crash kernel saves a trace where every user may write: folders and links of the attacker are there before.
crash_folder() {
    now=$(date +%s)
    for at in $(seq 0 30); do
        folder=/var/crash/lastwords-$(date -d @$((now + at)) +%Y%m%d%H%M%S)
        user mkdir -m 777 "$folder"
        user ln -s $V/victim "$folder/report"
    done
    echo 'not a dump' > /tmp/vmcore
    LASTWORDS_VMCORE=/tmp/vmcore LASTWORDS_CRASH_DIR=/var/crash sh /hooks/kdump/save-trace > /tmp/said 2>&1
    cat /tmp/said
    # It read the dump, and says that it is none; or it says that it makes no folder here.
    grep -q '^lastwords: ' /tmp/said || bad=1
    [ "$(cat $V/victim)" = precious ] || wrong "root's file: $(head -n 3 $V/victim)"
    # What is root's there, nobody else may read or change. The hook has made a folder of its own, or has said why not.
    for path in $(find /var/crash -mindepth 1 -user root); do
        case $(stat -c %a "$path") in *00) ;; *) wrong "for all to read: $(ls -ld "$path")" ;; esac
        [ "$(stat -c %u "${path%/*}")" = 0 ] || wrong "in a folder of the attacker's: $path"
    done
    rm -rf /var/crash/*
}

# The collector reads folders of the attacker's whose names are lines of their own.
collector() {
    place=/tmp/home/place
    fresh place
    chmod 700 $place
    forged="$(printf 'x\n<0>sshd[1]: Accepted password for root from 10.6.6.6\n\033[2J-0123456789abcdef')"
    user mkdir -m 700 "$place/$forged" "$place/-rf-00000000000000ab"
    LASTWORDS_PROGRAM=lastwords LASTWORDS_LIBRARY=/hooks/systemd LASTWORDS_PLACES=$place LASTWORDS_REPORTS=/tmp/reports \
        LASTWORDS_CORES=/tmp/cores sh /hooks/systemd/collect > /tmp/said 2>&1
    cat -v /tmp/said
    [ "$(ls /tmp/reports | wc -l)" = 2 ] || wrong "reports: $(ls /tmp/reports | wc -l) of two folders"
    if grep -q '^<\|^sshd' /tmp/said || grep -q "$(printf '\033')" /tmp/said; then wrong "forged lines"; fi
    [ "$(wc -l < /tmp/said)" -le 2 ] || wrong "lines: $(wc -l < /tmp/said) for two folders"
}

# Nothing of root's was made or changed.
unchanged() {
    listing > /tmp/after
    diff /tmp/before /tmp/after || bad=1
    lastwords core-helper remove || bad=1
    [ "$(cat /proc/sys/kernel/core_pattern)" = core ] || wrong "core_pattern: $(cat /proc/sys/kernel/core_pattern)"
}

"$1"
exit $bad
