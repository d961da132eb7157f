#!/bin/sh
# nodejs 18.20.4 of Debian 12 for mips64el, and what it depends on, unpacked in ROOT, with dev/null, dev/urandom and proc.
# qemu-mips64el-static is that of Debian 12. perf.data knows only its process, in which the addresses of the dump
# mean nothing. The dump is shortened to its first 72 kB.
ROOT=/tmp/debian-mips64el
mkdir -p $ROOT/tmp/cap-node18-mips64le-dump
cp work.js $ROOT/tmp/cap-node18-mips64le-dump
cp /usr/bin/qemu-mips64el-static $ROOT
perf record -k mono -F 49 -e cpu-clock -g -o perf.data -- python3 -c "
import os
os.chroot('$ROOT')
os.chdir('/tmp/cap-node18-mips64le-dump')
os.execv('/qemu-mips64el-static', '/qemu-mips64el-static /usr/bin/node --perf-prof --perf-basic-prof-only-functions --single-threaded work.js 700'.split())"
cp $ROOT/tmp/cap-node18-mips64le-dump/jit-*.dump .
