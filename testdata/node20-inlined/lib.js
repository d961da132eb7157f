'use strict';
// A loop that is inlined into its caller in another file.
exports.small = function small(x) {
  let s = x;
  for (let i = 0; i < 50; i++) s = (s * 31 + i) | 0;
  return s;
};
