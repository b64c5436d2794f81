#!/bin/busybox sh
# The first program of a guest with a disk: it mounts the disk, and leaves all else to the system there.
PART='the first system: '
. /prelude
until [ -b /dev/vda ]; do sleep 0.1; done
mkdir -p /root
mount -t ext4 /dev/vda /root || fail "the disk"
umount /proc /sys /t
mount -o move /dev /root/dev
exec switch_root /root /sbin/init
