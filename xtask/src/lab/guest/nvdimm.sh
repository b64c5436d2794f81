#!/bin/busybox sh
# The guest's first program for persistent memory: reports what the last boot left in it, then records until the machine is reset.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /etc /pmem
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp NO_COLOR=1
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mount -t tmpfs t /tmp
mount -t tmpfs t /run
dmesg -n 4
echo 'root:x:0:0:root:/tmp:/bin/sh' > /etc/passwd
while read -r module; do
    insmod "/mod/$module.ko" || echo "LAB-FAILED insmod $module"
done < /modules
# DAX needs a description of each page, which a namespace without a mode has not: the first boot gives it the mode fsdax, whose
# data begin 2 MiB behind the namespace. Later boots find the mode in the memory.
nd=/sys/bus/nd
# The kernel looks for the mode beside this script: without the wait, the mode would be given a second time meanwhile.
left=20
until [ -b /dev/pmem0 ] || [ $left = 0 ]; do
    sleep 1
    left=$((left - 1))
done
if ! [ -e /sys/class/block/pmem0/device ] || ! readlink -f /sys/class/block/pmem0/device | grep -q pfn; then
    echo namespace0.0 > $nd/drivers/nd_pmem/unbind
    echo 6d1e5c1a-0b4e-4e4f-9d6b-1a2b3c4d5e6f > $nd/devices/pfn0.0/uuid
    echo ram > $nd/devices/pfn0.0/mode
    echo namespace0.0 > $nd/devices/pfn0.0/namespace
    echo pfn0.0 > $nd/drivers/nd_pmem/bind
fi
ls /dev/pmem*
mount -t ext4 -o dax=always /dev/pmem0 /pmem || echo 'LAB-FAILED mount of /dev/pmem0'
if [ -s /pmem/session ]; then
    for input in /pmem/session /dev/pmem0; do
        lastwords report --utc "$input" > /tmp/text 2> /tmp/said
        status=$?
        sum=$(md5sum < /tmp/text)
        echo "NVDIMM-REPORT $input $status $(wc -l < /tmp/text) ${sum%% *}"
        [ $status = 0 ] || cat /tmp/said
    done
fi
echo NVDIMM-REPORTED
# The host stops the machine here, and reads the memory before the application begins anew.
if [ -e /pmem/panic ]; then
    rm /pmem/panic
    sleep 3
fi
xtask nvdimm-here /pmem || echo "LAB-FAILED nvdimm-here"
while :; do sleep 100; done
