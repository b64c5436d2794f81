#!/bin/sh
# Runs on a Debian when systemd has booted it: without arguments, each word of this boot in its time; with a word, what the word says.
# Says of each on the console how it ended. The last word of a boot is followed by a reset, over which the memory stays.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root NO_COLOR=1 DEBIAN_FRONTEND=noninteractive
APP=/lab/built/compiled/app
STATE=/var/lib/lastwords
PATTERN=/proc/sys/kernel/core_pattern
T=/sys/kernel/tracing
SESSIONS=/dev/shm/lastwords-1000
bad=0

wrong() {
    echo "WRONG: $*"
    bad=1
}

# user COMMAND...: with the rights of a user, in its folder
user() { (cd /home/user && runuser -u user -- "$@"); }

# start UNIT: starts it, and prints what it said
start() {
    systemctl start "$1" || wrong "$1: systemctl start"
    result=$(systemctl show -p Result --value "$1")
    echo "$1: $result, status $(systemctl show -p ExecMainStatus --value "$1")"
    [ "$result" = success ] || wrong "$1: $result"
    journalctl -q -b -o cat -u "$1" > /tmp/journal
    cat /tmp/journal
    # The messages of system calls that were refused.
    if grep -iE 'denied|not permitted|read-only|error|cannot' /tmp/journal; then wrong "$1: its log"; fi
}

# is_roots PATH: no other user may open anything in it
is_roots() {
    find "$1" ! -type l \( ! -user root -o -perm /077 \) -ls > /tmp/others
    [ ! -s /tmp/others ] || wrong "others may open: $(cat /tmp/others)"
    find "$1" -type f -printf '%M %u %s %p\n'
}

install() {
    uname -r
    cat /sys/fs/cgroup/cgroup.controllers
    useradd --create-home --uid 1000 user
    cp /lab/built/compiled/liblastwords.so.0 /usr/local/lib
    ldconfig
    dpkg -i /lab/lastwords_*.deb || wrong "dpkg -i"
    systemctl enable lastwords-bundle.service lastwords-last-boot.service || wrong "systemctl enable"
    # A failure of another unit is seen, but is not ours.
    systemctl --failed --no-legend
}

bundle() {
    start lastwords-last-boot.service
    start lastwords-bundle.service
    [ "$(readlink $STATE/bundles/last.bundle)" = "$(uname -r).bundle" ] || wrong "last.bundle: $(ls -l $STATE/bundles)"
    [ -s $STATE/bundles/last.bundle ] || wrong "no bundle"
    is_roots $STATE
}

# Two sessions that ended, one that records, and a core without a session.
collect() {
    user $APP "" abort
    user $APP "" kill
    # A redirection of the function would leave its shell the console.
    (exec > /lab/lives 2> /dev/null; user $APP "" sleep) &
    mkdir -p /var/lib/systemd/coredump
    echo core > $PATTERN
    (cd /home/user && /lab/attack as 1000 /lab/attack die)
    mv /home/user/core* /var/lib/systemd/coredump/core.attack.1000.x.1.1 || wrong "no core"
    start lastwords-collect.service
    is_roots $STATE/reports
    reports=0
    for report in $STATE/reports/1000-*; do
        [ "$(grep -c 'app:step' "$report/report")" = 2000 ] || wrong "$report: $(tail -n 3 "$report/report" "$report/account")"
        tail -n 2 "$report/account"
        reports=$((reports + 1))
    done
    [ $reports = 2 ] || wrong "$reports reports of 2 sessions"
    cat $STATE/reports/core.*/account || wrong "no account of the core"
}

# After a week by default; at once with an age of 0 days. The session that records stays.
retention() {
    start lastwords-retention.service
    [ "$(ls $SESSIONS | grep -c -- -)" = 3 ] || wrong "the sessions are $(ls $SESSIONS)"
    mkdir -p /run/systemd/system/lastwords-retention.service.d
    printf '[Service]\nEnvironment=LASTWORDS_KEEP_DAYS=0\n' > /run/systemd/system/lastwords-retention.service.d/age.conf
    systemctl daemon-reload
    sleep 1
    start lastwords-retention.service
    ls -l $SESSIONS
    [ "$(ls $SESSIONS | grep -c -- -)" = 1 ] || wrong "the sessions are $(ls $SESSIONS)"
    user lastwords list | tee /tmp/said
    grep -q live /tmp/said || wrong "the session that records is gone"
    kill -KILL "$(cut -d ' ' -f 2 /lab/lives)"
}

# dies: a user's process dies; its core
dies() {
    rm -f /home/user/core*
    (cd /home/user && /lab/attack as 1000 /lab/attack die)
    /lab/attack look /home/user/core* 2>&1
}

# saved: a user's process with a session in files, on the heap and in a memfd dies by SIGABRT; all have the signal, and all events
saved() {
    rm -rf "$SESSIONS"
    for where in "" heap memfd; do user $APP "$where" abort > /dev/null 2>&1; done
    user lastwords list | tee /tmp/list
    [ "$(grep -c '^SIGABRT' /tmp/list)" = 3 ] || wrong "not all of 3 sessions have their signal"
    # What a copy was made of is the folder of a memory that is gone.
    for session in $(awk '/^SIGABRT/ { print $NF }' /tmp/list); do
        user lastwords report "$SESSIONS/$session" > /tmp/report 2> /tmp/account
        events=$(grep -c app:step /tmp/report)
        echo "$session: $events events, $(tail -n 1 /tmp/account)"
        [ "$events" = 2000 ] || wrong "$session: $events events of 2000"
    done
}

# Cores and sessions arrive. The kernel's own handle is used where there is one, and the age of the process otherwise.
core_helper() {
    # What the kernel itself puts in the place of %F.
    printf '#!/bin/sh\necho "handle=$1" > /lab/handle\n' > /lab/handler
    chmod 755 /lab/handler
    echo '|/lab/handler %P,%F' > $PATTERN
    dies > /dev/null
    sleep 2
    cat /lab/handle
    echo core > $PATTERN
    truth=$(dies)
    lastwords core-helper install || wrong "install"
    cat $PATTERN
    grep -q ' %P %s %d,%F %c ' $PATTERN || wrong "no handle in the pattern"
    echo 'p:opened do_sys_openat2 path=+0($arg2):ustring' > $T/kprobe_events
    echo 1 > $T/events/kprobes/opened/enable
    echo 1 > $T/events/syscalls/sys_enter_pidfd_open/enable
    echo > $T/trace
    ours=$(dies)
    echo 0 > $T/events/enable
    grep lastwords $T/trace > /tmp/calls
    echo > $T/kprobe_events
    echo "core: $ours; without the helper: $truth"
    [ "$ours" = "$truth" ] || wrong "the core"
    case $truth in whole*) ;; *) wrong "no core without the helper" ;; esac
    handles=$(grep -c 'path="/proc/self/fdinfo/' /tmp/calls)
    ages=$(grep -c pidfd_open /tmp/calls)
    echo "looked at the handle: $handles times, at the age: $ages times"
    if grep -q ',[0-9]' /lab/handle; then want=1:0; else want=0:2; fi
    [ "$handles:$ages" = $want ] || wrong "handle:age is not $want: $(cat /tmp/calls)"
    saved
    dmesg | grep 'lastwords core-helper'
}

record() {
    cd $T/instances/boot_map || wrong "no instance"
    for events in sched/sched_switch irq timer; do echo 1 > events/$events/enable; done
    for n in 1 2 3 4 5; do
        echo "marker $n" > trace_marker
        sleep 0.2
    done
    echo 0 > tracing_on
    grep -c . trace
}

# The units were started by systemd as it booted.
last_boot() {
    for unit in lastwords-last-boot.service lastwords-bundle.service; do
        start $unit
        [ "$(systemctl is-active $unit)" = active ] || wrong "$unit"
    done
    is_roots $STATE/last-boot
    lastwords report $STATE/last-boot/*/trace.dat > /tmp/report || wrong "report"
    wc -l < /tmp/report
    for n in 1 2 3 4 5; do grep -q "marker $n" /tmp/report || wrong "no marker $n"; done
}

journal() {
    systemctl --failed --no-legend
    journalctl -q -b -p warning -o short-monotonic --no-hostname | tail -n 20
    journalctl -q -b -p warning | grep -i lastwords && wrong "of ours"
}

# Programs of SELinux's common type, and one that a web server's domain may begin with.
label() {
    cp $APP /usr/local/bin/app
    cp $APP /usr/local/sbin/server
    restorecon /usr/local/bin/* /usr/local/lib/* /usr/local/sbin/* /usr/bin/lastwords
    chcon -t httpd_exec_t /usr/local/sbin/server
    # The kernel's log has all denials.
    echo 0 > /proc/sys/kernel/printk_ratelimit
    sestatus
    id -Z
    ls -Z /usr/local/bin /usr/bin/lastwords /usr/lib/lastwords
}

# The domains that are tried: a user without confinement, a user with it, a web server. Each has a user's number, and a program.
DOMAINS='unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023 1000 /usr/local/bin/app
user_u:user_r:user_t:s0 1001 /usr/local/bin/app
system_u:system_r:httpd_t:s0 1002 /usr/local/sbin/server'
PLACES='files heap memfd'

# make_units: a unit for each domain and place of a session
make_units() {
    while read -r domain uid program; do
        for place in $PLACES; do
            printf '[Service]\nType=oneshot\nSELinuxContext=%s\nUser=%s\nExecStart=%s %s abort\n' \
                "$domain" "$uid" "$program" "$place" > "/run/systemd/system/domain-$uid-$place.service"
        done
    done << END
$DOMAINS
END
    systemctl daemon-reload
}

# in_domain DOMAIN UID PROGRAM: a process of a domain dies by SIGABRT with a session in each place
in_domain() {
    echo "$1:"
    rm -rf "/dev/shm/lastwords-$2"
    dmesg -C
    for place in $PLACES; do systemctl start "domain-$2-$place.service" 2> /dev/null; done
    # How it was is read without the policy: the programs of this reading have domains of their own.
    mode=$(getenforce)
    dmesg | cat > /tmp/denials
    setenforce 0
    for place in $PLACES; do
        echo "$place: $(systemctl show -p Result -p ExecMainStatus --value "domain-$2-$place.service" | tr '\n' ' ')"
        journalctl -q -b -o cat "_SYSTEMD_UNIT=domain-$2-$place.service" | tail -n 2
    done
    ls -lZ "/dev/shm/lastwords-$2"
    runuser -u "$(id -nu "$2")" -- lastwords list | tee /tmp/list
    grep -E 'lastwords|avc' /tmp/denials
    setenforce "$mode"
    # systemd may not begin the domain of a confined user.
    if [ "$mode" = Permissive ] || [ "$2" != 1001 ]; then
        [ "$(grep -c '^SIGABRT' /tmp/list)" = 3 ] || wrong "$1: not all of 3 sessions have their signal"
    fi
}

# domains: all of them, with the core helper installed
domains() {
    getenforce
    echo core > $PATTERN
    lastwords core-helper remove
    lastwords core-helper install || wrong "install"
    while read -r domain uid program; do in_domain "$domain" "$uid" "$program" < /dev/null; done << END
$DOMAINS
END
}

permissive() {
    label
    useradd --create-home --uid 1001 confined
    useradd --create-home --uid 1002 server
    make_units
    domains
}

enforcing() {
    setenforce 1
    domains
    setenforce 0
}

# The units under the policy that is enforced. What they said is read without it.
units() {
    dmesg -C
    setenforce 1
    for unit in lastwords-bundle lastwords-collect lastwords-retention; do systemctl start $unit.service || wrong $unit; done
    dmesg | grep avc
    setenforce 0
    for unit in lastwords-bundle lastwords-collect lastwords-retention; do start $unit.service; done
    is_roots $STATE
}

surroundings() { /lab/built/lastwords-proof-surroundings --built /lab/built --compiled /lab/built/compiled || bad=1; }

if [ $# != 0 ]; then
    "$@"
    exit $bad
fi
exec > /dev/console 2>&1 < /dev/null
dmesg -n 4
boot=1
while [ -e /lab/done-$boot ]; do boot=$((boot + 1)); done
while read -r word seconds; do
    echo "RECORDER-BEGIN $word"
    # Through a pipe, so that no program has the console itself.
    { timeout -k 10 "$seconds" sh /lab/confined.sh "$word"; echo "RECORDER-END $word $?"; } < /dev/null 2>&1 | cat
done < /lab/words-$boot
touch /lab/done-$boot
sync
echo "RECORDER-BOOT-DONE $boot."
[ -e /lab/words-$((boot + 1)) ] || while :; do sleep 100; done
# The serial port sends the line.
sleep 2
echo b > /proc/sysrq-trigger
