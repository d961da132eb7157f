/** Burns its time in one line each. */
export function slowPath(count: number): number {
  let sum: number = count;

  for (let step = 0; step < 60; step++) sum = (sum * 31 + step) | 0;

  return sum;
}

export const fastPath = (value: number): number => {
  let sum: number = value;
  for (let step = 0; step < 30; step++) sum = (sum * 17 + step) | 0;
  return sum;
};
