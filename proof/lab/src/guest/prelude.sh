# The common beginning of the first programs of guests: it mounts file systems and loads modules. The text of PART is put before each failure.
/bin/busybox mkdir -p /proc /sys /dev /tmp /t
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mount -t tmpfs t /t
dmesg -n 4
fail() { echo "LAB-FAILED: $PART$*"; while :; do sleep 100; done; }
for module in $(cat /modules); do insmod "/mod/$module.ko" || fail "insmod $module"; done
