#!/bin/sh
# Runs on an installed Debian when it has booted: installs the package, has the crash kernel's first file system made as
# docs/INSTALL.md says, records, keeps what the kernel itself prints, and crashes. The kernel's command line has lab.by.
exec > /dev/console 2>&1
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
fail() { echo "LAB-FAILED: $*"; while :; do sleep 100; done; }
release=$(uname -r)
by=$(tr ' ' '\n' < /proc/cmdline | sed -n 's/^lab.by=//p')
crash="root=LABEL=lab ro console=ttyS0 nr_cpus=1 irqpoll reset_devices loglevel=4 panic=0"
dpkg -i /lab/lastwords_*.deb || fail "the package of lastwords"
case $by in
initramfs-tools)
    # The running kernel's own first file system is not made anew, which takes minutes here.
    echo update_initramfs=no > /etc/initramfs-tools/update-initramfs.conf
    dpkg -i /lab/kdump-tools_*.deb || fail "the package of kdump-tools"
    # The package loads a crash kernel where it may. This is what docs/INSTALL.md has a user do.
    grep -q '^USE_KDUMP=1' /etc/default/kdump-tools || fail "kdump-tools is disabled: $(grep USE_KDUMP /etc/default/kdump-tools)"
    kdump-config unload
    /etc/kernel/postinst.d/kdump-tools "$release" || fail "the crash kernel's first file system"
    kdump-config load || fail "kdump-config load" ;;
dracut)
    printf 'add_dracutmodules+=" lastwords "\nhostonly="yes"\n' > /etc/dracut.conf.d/lastwords.conf
    dracut --force /boot/crash.img "$release" || fail "dracut"
    kexec -p -s "/boot/vmlinuz-$release" --initrd=/boot/crash.img \
        --command-line="$crash systemd.unit=reboot.target" || fail "kexec -p" ;;
*) fail "lab.by is '$by'" ;;
esac
[ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] || fail "the crash kernel is not loaded"
echo "LAB-CRASH-KERNEL-LOADED"

cd /sys/kernel/tracing || fail "tracefs"
echo 64 > buffer_size_kb
for events in sched irq kmem raw_syscalls timer signal; do echo 1 > events/$events/enable || fail "events $events"; done
for n in $(seq 20); do
    cat /proc/self/stat /proc/interrupts | sort | wc > /dev/null
    echo "marker $n" > trace_marker
done
sleep 0.2
echo 0 > tracing_on
sleep 0.2
mkdir -p /lab/truth/top /lab/truth/system
cat trace > /lab/truth/top/trace
cat events/*/*/format > /lab/truth/system/formats
echo "$release" > /lab/truth/system/release
sync
echo "LAB-CRASHES"
sleep 0.2
echo 1 > /proc/sys/kernel/sysrq
echo c > /proc/sysrq-trigger
fail "no crash"
