#!/bin/sh
# dracut sources this script when the root file system is mounted. It does nothing in other kernels than crash kernels.
if [ -s /proc/vmcore ] && mount -o remount,rw "${NEWROOT:-/sysroot}"; then
    LASTWORDS_CRASH_DIR=${NEWROOT:-/sysroot}/var/crash /usr/lib/lastwords/save-trace
fi
