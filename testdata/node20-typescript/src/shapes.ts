interface Shape {
  readonly sides: number;
}

export class Polygon implements Shape {
  constructor(readonly sides: number) {}

  perimeter(length: number): number {
    let total: number = 0;
    for (let side = 0; side < this.sides; side++) total = (total + length * side) | 0;
    return total;
  }
}
