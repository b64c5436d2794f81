#!/bin/busybox sh
# The guest's first program for persistent memory: reports what the last boot left in it, then records until the machine is reset. The word
# lab.memory of the kernel's command line says which kind of memory it is.
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
. /persistent
kind=$(tr ' ' '\n' < /proc/cmdline | sed -n 's/^lab.memory=//p')

# report INPUT: what the last boot left there, as text and as it is recovered
report() {
    lastwords report --utc "$1" > /tmp/text 2> /tmp/said
    status=$?
    sum=$(md5sum < /tmp/text)
    rm -rf /tmp/out
    lastwords recover "$1" -o /tmp/out > /dev/null 2>> /tmp/said || status="$status+$?"
    recovered=$(cd /tmp/out && find . -type f | sort | xargs md5sum | md5sum)
    echo "NVDIMM-REPORT $1 $status $(wc -l < /tmp/text) ${sum%% *} ${recovered%% *}"
    [ "$status" = 0 ] || cat /tmp/said
}

case $kind in
dax | memmap)
    await /dev/pmem0
    # Memory that the kernel was told to take for persistent has a description of each page without a mode.
    if [ $kind = dax ] && ! readlink -f /sys/class/block/pmem0/device | grep -q pfn; then
        lastwords doctor | grep 'persistent memory'
        give pfn0.0 nd_pmem
    fi
    lastwords doctor | grep 'persistent memory'
    mount -t ext4 -o dax=always /dev/pmem0 /pmem || echo 'LAB-FAILED mount of /dev/pmem0'
    inputs="/pmem/session /dev/pmem0"
    ;;
physical)
    # /dev/mem has no end that could be looked up: the range is copied.
    dd if=/dev/mem of=/tmp/range bs=4096 skip=65536 count=16384 2> /dev/null || echo 'LAB-FAILED dd of /dev/mem'
    inputs=/tmp/range
    ;;
device-dax)
    await /dev/dax0.0
    [ -e /dev/dax0.0 ] || give dax0.0 dax_pmem
    await /dev/dax0.0
    lastwords doctor | grep 'persistent memory'
    inputs=/dev/dax0.0
    ;;
*) echo "LAB-FAILED lab.memory=$kind" ;;
esac
ls -l /dev/pmem* /dev/dax* 2> /dev/null
if lab nvdimm-here $kind --knows; then
    for input in $inputs; do report $input; done
fi
rm -f /tmp/range
echo NVDIMM-REPORTED
lab nvdimm-here $kind || echo "LAB-FAILED nvdimm-here"
while :; do sleep 100; done
