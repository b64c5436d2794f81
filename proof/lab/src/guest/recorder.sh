#!/bin/busybox sh
# The guest's first program for the recorder itself: runs each line of /jobs (a name, a command) and says how it ended.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /etc
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp NO_COLOR=1
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mkdir -p /dev/shm /dev/hugepages
mount -t tmpfs t /dev/shm
mount -t tmpfs t /tmp
dmesg -n 4
echo 'root:x:0:0:root:/tmp:/bin/sh' > /etc/passwd
cd /tmp || exit
uname -srm
while read -r name command; do
    echo "RECORDER-BEGIN $name"
    sh -c "$command" > /tmp/printed 2>&1 < /dev/null
    status=$?
    if [ $status = 0 ]; then tail -n 7 /tmp/printed; else cat /tmp/printed; fi
    echo "RECORDER-END $name $status"
done < /jobs
echo RECORDER-DONE
while :; do sleep 100; done
