#!/bin/sh
# nodejs 18.20.4 of Debian 12 for armhf, and what it depends on, unpacked in ROOT, with dev/null, dev/urandom and proc.
# qemu-arm-static is that of Debian 12. perf.data knows only its process, in which the addresses of the dump
# mean nothing. The dump is shortened to its first 72 kB.
ROOT=/tmp/debian-armhf
mkdir -p $ROOT/tmp/cap-node18-arm-dump
cp work.js $ROOT/tmp/cap-node18-arm-dump
cp /usr/bin/qemu-arm-static $ROOT
perf record -k mono -F 49 -e cpu-clock -g -o perf.data -- python3 -c "
import os
os.chroot('$ROOT')
os.chdir('/tmp/cap-node18-arm-dump')
os.execv('/qemu-arm-static', '/qemu-arm-static /usr/bin/node --perf-prof --perf-basic-prof-only-functions --single-threaded work.js 700'.split())"
cp $ROOT/tmp/cap-node18-arm-dump/jit-*.dump .
