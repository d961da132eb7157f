#!/bin/sh
# nodejs 20.20.2, esbuild 0.28.2
set -e
mkdir -p /tmp/typescript
cp -r src /tmp/typescript
cd /tmp/typescript
esbuild src/main.ts --bundle --minify --platform=node --sourcemap --outfile=bundle/app.js
perf record -k mono -e cpu-clock -F 499 -o perf.data node --perf-prof --perf-basic-prof-only-functions /tmp/typescript/bundle/app.js 1.5
