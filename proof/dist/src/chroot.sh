#!/bin/sh
# Runs in a clean Debian, in name spaces of its own: installs the packages, uses them and removes them. /packages has the packages, /sources
# an example and the comparison of what is recovered with what it recorded.
set -eu
export DEBIAN_FRONTEND=noninteractive
fail() {
    echo "FAULT: $*" >&2
    exit 1
}
# quietly COMMAND...: its output is shown only if it fails.
quietly() { "$@" > /tmp/quiet.log 2>&1 || { cat /tmp/quiet.log >&2; fail "$*"; }; }
listing() {
    find / -xdev \( -path /proc -o -path /tmp -o -path /dev -o -path /run -o -path /var/lib/dpkg -o -path /var/lib/apt \
        -o -path /var/cache -o -path /var/log -o -path /etc/ld.so.cache \) -prune -o -print | sort
}
# in_image FOLDER: the program runs in an unpacked first file system, with the libraries that are there.
in_image() {
    [ -x "$1/usr/lib/lastwords/save-trace" ] || fail "$1 has no save-trace"
    chroot "$1" /usr/bin/lastwords --version > /tmp/version || fail "lastwords does not run in $1"
    said=$(chroot "$1" /usr/lib/lastwords/save-trace 2>&1) || fail "save-trace in $1: $said"
    case $said in *"no /proc/vmcore"*) ;; *) fail "save-trace in $1 said: $said" ;; esac
    # Of a file that is no dump, the script keeps what the program said, and does not fail.
    echo "no dump" > "$1/vmcore"
    said=$(LASTWORDS_VMCORE=/vmcore chroot "$1" /usr/lib/lastwords/save-trace 2>&1) || fail "save-trace in $1: $said"
    case $said in *"lastwords: exit status 1: "*vmcore*) ;; *) fail "save-trace in $1 said of a file that is no dump: $said" ;; esac
    grep -q vmcore "$1"/var/crash/lastwords-2*/report || fail "save-trace in $1 left no report"
}
# start PROGRAM: records in the background; `pid` is its process, /tmp/reports what it reported.
start() {
    : > /tmp/reports
    "$@" > /tmp/reports &
    pid=$!
    for _ in $(seq 200); do
        [ ! -s /tmp/reports ] || break
        sleep 0.05
    done
    [ -s /tmp/reports ] || fail "$* reported nothing"
    sleep 0.3
}
kill_it() {
    kill -9 "$pid"
    wait "$pid" 2> /dev/null || true
}
compare() { awk -v batch=100 -v overwritten="$(grep -c overwritten /tmp/account || true)" -f /sources/compare.awk /tmp/reports "$1"; }

# Folders that the tests below put files into.
mkdir -p /lib/modules /var/lib/systemd/coredump
listing > /tmp/before
quietly apt-get -q install -y --no-install-recommends /packages/*.deb
grep -q "this is what 'lastwords doctor' says" /tmp/quiet.log || { cat /tmp/quiet.log; fail "the installation did not show what doctor says"; }
grep -q '^good' /tmp/quiet.log || { cat /tmp/quiet.log; fail "doctor found nothing good"; }
changed=$(dpkg --verify lastwords liblastwords0 liblastwords-dev)
[ -z "$changed" ] || fail "files differ from their packages: $changed"
[ "$(stat -c %a /var/lib/lastwords /var/lib/lastwords/reports | tr '\n' ' ')" = "700 700 " ] || fail "modes of /var/lib/lastwords"
lastwords --version
zcat /usr/share/man/man1/lastwords-report.1.gz | grep -q '^\.TH lastwords-report 1' || fail "the page of report"
bash -c '. /usr/share/bash-completion/completions/lastwords && complete -p lastwords' > /dev/null || fail "completions of bash"

# Program and library have no symbols; with the package of debug files, an address of them has its function.
for pair in "/usr/bin/lastwords main" "$(echo /usr/lib/*/liblastwords.so.0) lw_start"; do
    file=${pair% *} function=${pair#* }
    if nm "$file" > /tmp/symbols 2>&1 && grep -q " [tT] $function" /tmp/symbols; then fail "$file has symbols"; fi
    id=$(readelf -n "$file" | sed -n 's/^ *Build ID: //p')
    debug=/usr/lib/debug/.build-id/$(echo "$id" | cut -c1-2)/$(echo "$id" | cut -c3-).debug
    address=$(nm "$debug" | awk -v name="$function" '$3 == name { print $1; exit }')
    [ -n "$address" ] || fail "$debug has no $function"
    [ "$(addr2line -f -e "$debug" "0x$address" | head -n 1)" = "$function" ] || fail "$file: the address of $function has no name"
    readelf --string-dump=.gnu_debuglink "$file" | grep -q "$(basename "$debug")" || fail "$file does not name its debug file"
done

# Programs that are linked with the library, shared and static, are killed. Each event whose recording call returned is there.
# shellcheck disable=SC2046 # pkg-config prints several words.
cc -Wall -Werror -o /tmp/shared /sources/main.c $(pkg-config --cflags --libs lastwords) -lpthread
# shellcheck disable=SC2046
cc -Wall -Werror -o /tmp/static /sources/main.c $(pkg-config --static --cflags --libs lastwords | sed 's/-llastwords/-Wl,-Bstatic & -Wl,-Bdynamic/')
ldd /tmp/shared | grep -q 'liblastwords.so.0 => /' || fail "the program does not use the shared library"
ldd /tmp/static | grep -q liblastwords && fail "the program is not linked with the static library"
for program in /tmp/shared /tmp/static; do
    start "$program"
    kill_it
    lastwords report --style fields c-app > /tmp/text 2> /tmp/account
    compare /tmp/text
    head -n -800 /tmp/text > /tmp/cut
    if compare /tmp/cut > /dev/null 2>&1; then fail "the comparison passes a text that lacks its newest events"; fi
    quietly lastwords destroy --left-over
done

# The collector: a session of root and one of another user that ended, one that records, a core without a session, and a folder of the
# other user whose name would be cut by echo.
start setpriv --reuid 1234 --regid 1234 --clear-groups /tmp/shared
kill_it
start /tmp/shared
kill_it
ended=$(echo /dev/shm/lastwords-0/c-app-*)
start /tmp/shared
echo "no core" > /var/lib/systemd/coredump/core.x.0.1.1.1
setpriv --reuid 1234 --regid 1234 --clear-groups mkdir -m 700 '/dev/shm/lastwords-1234/a\c-0123456789abcdef'
reports=/var/lib/lastwords/reports
if LASTWORDS_KB=1 /usr/lib/lastwords/collect > /tmp/collected 2>&1; then fail "collect makes reports where there is no room"; fi
[ "$(grep -c 'have more than 1 KiB' /tmp/collected)" = 4 ] || { cat /tmp/collected; fail "four reports were to be refused"; }
# The reports without events fit, and no other is cut.
if LASTWORDS_KB=64 /usr/lib/lastwords/collect > /tmp/collected 2>&1; then fail "collect makes reports for which there is no room"; fi
[ "$(grep -c 'KiB that are left' /tmp/collected)" = 2 ] || { cat /tmp/collected; fail "two reports were to be refused"; }
/usr/lib/lastwords/collect > /tmp/collected || fail "collect: exit status $?"
[ "$(wc -l < /tmp/collected)" = 2 ] || { cat /tmp/collected; fail "two more reports were expected"; }
[ -s $reports/1234-0123456789abcdef/account ] || fail "the report of a folder without a session"
lastwords report --last 20000 "$ended" > /tmp/text 2> /dev/null
cmp /tmp/text $reports/0-*/report || fail "the report of root's session"
[ "$(cat $reports/1234-*/report | wc -l)" -gt 100 ] || fail "the report of the other user's session has few events"
grep -q '"uid": 1234' $reports/1234-*/list.json || fail "the data of the other user's session"
[ ! -s $reports/core.x.0.1.1.1/report ] && grep -q 'exit status 1' $reports/core.x.0.1.1.1/account || fail "the report of a core without a session"
/usr/lib/lastwords/collect > /tmp/collected
[ ! -s /tmp/collected ] || fail "sessions were reported twice"
sleep 1.1
quietly /usr/lib/lastwords/retain
[ -d "$ended" ] || fail "retention removed a session that ended a second ago"
quietly env LASTWORDS_KEEP_DAYS=0 /usr/lib/lastwords/retain
[ ! -d "$ended" ] || fail "retention kept the session of root that ended"
[ "$(ls /dev/shm/lastwords-1234)" = 'a\c-0123456789abcdef' ] || fail "retention kept the session of another user that ended"
lastwords list --json | grep -q '^      "ended": null' || fail "retention removed a session that records"
kill_it
quietly lastwords destroy --left-over

# systemd judges the units, with all programs that they name in their places.
units=$(cd /usr/lib/systemd/system && ls -d lastwords-*)
# shellcheck disable=SC2086 # Each word is a unit.
said=$(cd /usr/lib/systemd/system && systemd-analyze verify --man=no $units 2>&1) || fail "systemd-analyze verify: $said"
case $said in *lastwords*) fail "systemd-analyze verify: $said" ;; esac
for unit in lastwords-collect lastwords-retention; do
    quietly systemd-analyze security --offline=true --threshold=40 /usr/lib/systemd/system/$unit.service
    [ ! -e "$(echo /etc/systemd/system/*/$unit.timer)" ] || fail "$unit.timer is enabled by the installation"
done

# The first file systems of crash kernels have the program; the running kernel's own does not. No kernel is installed here.
mkdir -p /lib/modules/6.1.0-test /var/lib/kdump /tmp/image /tmp/dracut
for part in builtin builtin.modinfo order; do touch /lib/modules/6.1.0-test/modules.$part; done
echo CONFIG_RD_ZSTD=y > /boot/config-6.1.0-test
quietly depmod 6.1.0-test
cp -a /etc/initramfs-tools /var/lib/kdump/
quietly mkinitramfs -d /var/lib/kdump/initramfs-tools -o /tmp/crash.img 6.1.0-test
quietly unmkinitramfs /tmp/crash.img /tmp/image
in_image /tmp/image
[ -x /tmp/image/scripts/local-bottom/lastwords-save-trace ] || fail "no script in the crash kernel's first file system"
grep -q lastwords-save-trace /tmp/image/scripts/local-bottom/ORDER || fail "the script is not in the order"
quietly mkinitramfs -o /tmp/own.img 6.1.0-test
lsinitramfs /tmp/own.img > /tmp/own
if grep -q usr/bin/lastwords /tmp/own; then fail "the running kernel's first file system has lastwords"; fi
# dracut takes a module that is not named if its check is true: in kdump's first file system only.
check() { bash -c 'require_binaries() { :; }; . /usr/lib/dracut/modules.d/95lastwords/module-setup.sh; check'; }
status=0
(unset IN_KDUMP && check) || status=$?
[ $status = 255 ] || fail "dracut would put lastwords into all first file systems: $status"
(export IN_KDUMP=1 && check) || fail "dracut would not put lastwords into the first file system of kdump"
quietly dracut --no-kernel --no-compress --force --modules "base lastwords" /tmp/dracut.img
(cd /tmp/dracut && quietly lsinitrd --unpack /tmp/dracut.img)
in_image /tmp/dracut
cmp /tmp/dracut/etc/kdump/pre.d/lastwords /usr/lib/lastwords/save-trace || fail "kdump would not run the script"
[ -x "$(echo /tmp/dracut/usr/lib/dracut/hooks/pre-pivot/*save-trace-hook.sh)" ] || fail "dracut would not run the script"
rm -rf /lib/modules/6.1.0-test /boot/config-6.1.0-test /var/lib/kdump /var/lib/systemd/coredump/core.x.0.1.1.1

# Without a purge, reports stay. After it, nothing is left.
quietly apt-get -q remove -y lastwords liblastwords0 liblastwords-dev lastwords-dbg
[ ! -e /usr/bin/lastwords ] || fail "lastwords is there after its removal"
[ -d $reports ] || fail "the removal took the reports"
quietly dpkg --purge lastwords liblastwords0 liblastwords-dev lastwords-dbg
listing > /tmp/after
diff /tmp/before /tmp/after > /tmp/difference || { cat /tmp/difference; fail "the removal left or took files"; }
echo "installed, used and removed on Debian $(cat /etc/debian_version)"
