import { Polygon } from './shapes';
import { fastPath, slowPath } from './work';

type Seconds = number;
const duration: Seconds = Number(process.argv[2] ?? 2);

function round(polygon: Polygon, count: number): number {
  let result: number = 0;
  for (let turn = 0; turn < count; turn++) {
    result = (result + slowPath(turn) + fastPath(turn) + polygon.perimeter(turn)) | 0;
  }
  return result;
}

const polygon = new Polygon(50);
const end = Date.now() + duration * 1000;
let total = 0;
while (Date.now() < end) total ^= round(polygon, 5000);
console.log(total);
