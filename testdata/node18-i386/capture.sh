#!/bin/sh
# nodejs 18.20.4 of Debian 12 for i386, and what it depends on, unpacked in ROOT, with dev/null, dev/urandom and proc.
# It needs no emulation: the kernel is an x86-64 one.
ROOT=/tmp/debian-i386
mkdir -p $ROOT/tmp/cap-node18-i386
cp work.js $ROOT/tmp/cap-node18-i386
perf record -k mono -F 499 -e cpu-clock -g -o perf.data -- python3 -c "
import os
os.chroot('$ROOT')
os.chdir('/tmp/cap-node18-i386')
os.execv('/usr/bin/node', '/usr/bin/node --perf-prof --perf-basic-prof-only-functions --single-threaded work.js 500'.split())"
cp $ROOT/tmp/cap-node18-i386/jit-*.dump .
