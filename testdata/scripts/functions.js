const mk = [];
function decl(a, b) { return a + b; }
const arrow = (a) => a + 1;
const arrow1 = a => a + 2;
const asy = async (a) => a + 3;
const asy1 = async a => a + 4;
async function af(a) { return a; }
function* gen(a) { yield a; }
const o = {
  meth(a) { return a * 2; },
  get g() { return 5; },
  ['comp' + 1](a) { return a - 1; },
  prop: function (a) { return a - 2; },
  arr: a => a - 3,
  async am(a) { return a; },
};
class K extends Object {
  f = this.init();
  static s = K.sinit();
  #p = 3;
  constructor(a) { super(); this.a = a; }
  init() { return 4; }
  static sinit() { return 5; }
  #priv(a) { return a + this.#p; }
  call(a) { return this.#priv(a); }
}
class D extends K {}
exports.anon = function (x) { return x; };
(function () { for (let i = 0; i < 3; i++) decl(i, i); })();
for (let i = 0; i < 20; i++) { decl(1,2); arrow(1); arrow1(1); asy(1); asy1(1); af(1); gen(1).next(); o.meth(1); o.g; o.comp1(1); o.prop(1); o.arr(1); o.am(1); const k = new D(1); k.call(1); exports.anon(1); [1,2].map(function (x) { return x }).map((x) => x); }
