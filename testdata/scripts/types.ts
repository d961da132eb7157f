import type { A, B as C } from './a.ts';
import { type D, type E as F } from './b.ts';
declare function declared(a: number): void;
declare const declaredConst: () => void, other: (a: string) => { b: number };
declare global { interface Window { f(a: number): void; g: () => void } }
declare module 'x' { export function h(a: string): () => void; }
declare namespace NS { class Q { m(): void } }
declare class DC { constructor(a: string); m(): { a: number } }
declare abstract class DA { abstract m(): void }
namespace OnlyTypes { export type X = () => void }
interface I<T extends { a: () => void } = { a: () => void }> extends J<{ b: number }>, K { (a: number): void; new (a: string): I; m?(): void; readonly [key: string]: any }
export interface EI { call(a: number): void }
type Fn = (a: number) => void;
export type G<T> = T extends (a: infer U) => any ? { m(): void } : T extends string ? `a${string}b${T}` : () => void
type of = 1; type type = 2
function f1(a): number { return 1 }
function f2<T extends { a: () => void }>(a: T, b?: (e: Error) => void): { b: number } { return a as any }
function over(a: string): string;
function over(a: number): (b: number) => void
function over(a: any): any { return () => a }
function pred(x: unknown): x is string { return !0 }
function asserts1(x: unknown): asserts x is { a: number } { }
function asserts2(x: unknown): asserts x { }
function fnType(a: number): (b: number) => void { return (b) => {} }
function ctor(): new (a: string) => I { return class { constructor(a: string) {} } as any }
function thisParam(this: Window, a: number) { return this }
async function af(a: number): Promise<void> { await (async (): Promise<void> => {})() }
function* gen(): Generator<{ a: number }, void, () => void> { yield { a: 1 } }
async function* ag<T,>(): AsyncGenerator<T> { }
const a1 = (y): number => y * 2;
const a2 = <T,>(a: T) => a;
const a3 = async <T extends object>(a: T): Promise<T> => { return a };
const a4 = (cb: (e: Error) => void): ((a: number) => void) => (a) => cb(a as any);
const a5 = (x: any): x is string => typeof x === 'string';
const a6 = (x: number): (string | number) => x;
const a7: (a: number) => { b: () => void } = (a) => ({ b() { } });
const a8 = x1 => y1 => (z: number): string => '';
const { d1, d2: [d3] }: { d1: () => void; d2: any[] } = { d1: () => {}, d2: [] as (() => void)[] };
let l1: number, l2: () => void = () => {}, l3!: string;
let multi:
  | string
  | (() => void)
  = () => 1;

const c1 = l1 ? (x: number): string => 'a' : (y: number): string => 'b';
const c2 = l1 ? (l2) : () => 1;
const c3 = l1 ? (): void => {} : null;
const c4 = l1 ? function (x: string): void { } : async (x: string): Promise<void> => { };
const c5 = l1 ? l2() : () => 2, c6 = l1 ? l2?.() : l3 ? (l1) : (x: number) => x;
class P<T extends { a: number } = { a: number }> extends Base<T, { b: () => void }> implements I<{ c: number }>, J {
  private x = 1;
  readonly y: () => void = () => {};
  public static readonly z?: { a: number } = { a: 1 };
  protected w!: (a: number) => void;
  declare u: string;
  override o = (a: number): void => {};
  [key: string]: any;
  static [key: number]: () => void;
  #p: Map<string, () => void> = new Map<string, () => void>();
  constructor(a: string);
  constructor(a: any, b?: number) { super(); this.w = (c: number) => { } }
  m(): void
  m(a?: number): void { }
  private async *ag<T>(a: T): AsyncGenerator<T> { yield* a as any }
  get g(): { a: number } { return { a: 1 } }
  set g(v: { a: number }) { }
  opt?(): void;
  opt2?(): void { }
  delete(): boolean { return true }
  private delete2?<T>(a: T): boolean { return true }
  private if<T>(a: T): boolean { return true }
  public get<T>(k: string): T { return 1 as T }
  static async of<T>(...a: T[]): Promise<P<T>> { return null! }
  'quoted'(a: number): number { return a }
  private ['computed' + 1](a: number): number { return a }
  async = 5;
  type = 'x';
  readonly = true;
  declare
  abstract = () => 1;
  static { const s = (a: number): void => {} }
  is(a: unknown): a is P { return a instanceof P }
  as(): this { return this }
}
abstract class AB { abstract m(a: () => void): { a: number }; abstract x: number; protected abstract get v(): () => void; c(): void { } }
export default abstract class EAB<T> { n(t: T): void { } }
export abstract class EAB2 extends (Base as new () => any) { q() { return super.q() as { a: number } } }
const obj = { m(a: number): void { }, async *g<T>(): AsyncGenerator<T> { }, get x(): number { return 1 }, set x(v: number) { }, p: (a: number): number => a, q: <T>(a: T): T => a, [`k`](a: number): number { return a }, r: function (a: number): number { return a }, as: () => 1, type: (a: string) => a, satisfies() { return 1 } } satisfies Record<string, unknown>;
const s1 = { a: 1 } as { a: number; f(): void }, s2 = (() => 3) as () => number, s3 = [1, 2] as const satisfies readonly number[], s4 = l1! + l2!.length, s5 = l1! / 2 / 1, s6 = (l2! as () => void)!(), s7 = l2 as unknown as (a: number) => void;
const s8 = new Map<string, Array<Map<string, () => void>>>([['a', [new Map()]]]), s9 = l1 < l2 && l3 > (l1), s10 = useCallback<(a: string) => void>((a) => { }, []), s11 = l1 << 2 >> (1), s12 = tag<string>`a${(x: number): number => x}b`;
for (const x of l2 as Array<() => void>) { (y: number) => y }
for (let i = 0, n: number = 5; i < n; i++) { const k = (a: number): number => a }
outer: for (const a in l2) { inner: while (true) { continue outer } }
switch (l1) { case (l2): { (() => 1)() } case l1 ? l2 : l3: { f1(() => 2) } default: { (a: number) => a } }
try { l2() } catch (e: unknown) { ((x: unknown): void => { })(e) } finally { }
function sw(k: string) { switch (k) { case 'a': return
  default: return (a: number): number => a } }
const conv = (a as any as T1<string>[])[0], cc = l1 as number < 5 ? () => 1 : () => 2;
if (l1) lab: for (;;) { break lab }
const rec: Record<string, (a: number) => void> = { a: (x) => { }, b(x) { } }
const tpl = `${(a: number): string => `${a as any}`}`;
function defaults({ a = 1, b = () => 2 }: { a?: number; b?: () => number } = {}, [c, d]: [number, () => void] = [1, () => { }], ...rest: ((a: number) => void)[]): void { }
const nested = (a: (b: (c: number) => void) => (d: string) => void): ((e: number) => (f: string) => void) => (e) => (f) => { };
const kk = (a: typeof import('fs'), b: keyof typeof obj, c: I['m'], d: A extends (x: any) => infer R ? R : never, e: unique symbol, f: -1 | 'a' | `b${string}`): asserts a is any => { };
const opt = (a?: number, b?) => a, opt2 = function (a?, b?: string) { }, opt3 = async (a?) => a;
const mm = { a: l1 ? l2 : l3, b: l1 ? { c: (x: number): number => x } : (y) => y, ['k']: (z: number): void => { } };
const inst = makeBox<string>;
const arrow1 = (x: number): { a: number } => ({ a: x }), arrow2 = (x): typeof x => x, arrow3 = (x): x is any => x, arrow4 = (): [a: string, b?: () => void] => ['a'], arrow5 = (): "a" | 'b' => 'a', arrow6 = (): A.B.C<D>[] => [];
const gg = f2<number[]>(1)!, ii = a.b<() => void>(x => x).c<string>((y) => y);
const bang = !l1 as boolean, neg = -(l1 as number), tern = (l1 as boolean) ? (l2 as () => void) : l3!;
const reg = (a: string): RegExp => /[{(]/g, reg2 = l1! / 2, reg3 = (l1 as number) / 2 / 1;
export { a1 as b1, a2 as default1 }; export type { A }; export type * from './c.ts';
export const enumLike = { A: 'a', B: 'b' } as const; export type EnumLike = typeof enumLike[keyof typeof enumLike];
const accessor1 = class<T> { f: T = (() => 1) as T; g = (a: T): T => a }, cl2 = class Named<T extends () => void> implements I { h(): void { } };
label2: { (a: number): void => { } }
let asi = l1
type Asi = () => void
let asi2 = l2 as any
interface Asi2 { a(): void }
const last = async (a: number): Promise<() => void> => () => { }
