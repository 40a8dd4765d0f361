// Small chart of one number over the last 15 minutes.
import { svg } from "./dom.js";

const [WIDTH, HEIGHT] = [240, 44];
const PERIOD = 15 * 60 * 1000;
const SHORTEST = 60 * 1000;

class SparkLine extends HTMLElement {
  /** Draws points of `[time in ms, value or null]`. A gap of more than two intervals stays empty. */
  draw(points, interval, label) {
    const now = Date.now();
    const known = points.filter(([at, value]) => value !== null && at >= now - PERIOD);
    const most = Math.max(...known.map(([, value]) => value), 0);
    // While there are few points, they fill the chart.
    const span = Math.min(PERIOD, Math.max(SHORTEST, now - (known[0]?.[0] ?? now)));
    const x = ([at]) => (WIDTH * (1 - (now - at) / span)).toFixed(1);
    const y = ([, value]) => (HEIGHT - 3 - (HEIGHT - 8) * (most === 0 ? 0 : value / most)).toFixed(1);
    const runs = [];
    for (const point of known) {
      const run = runs.at(-1);
      if (run && point[0] - run.at(-1)[0] <= interval * 2500) run.push(point);
      else runs.push([point]);
    }
    const image = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
    image.append(svg("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 2.5, y2: HEIGHT - 2.5 }));
    for (const run of runs) {
      const line = run.map((point) => `${x(point)},${y(point)}`).join(" ");
      const [from, to] = [x(run[0]), x(run.at(-1))];
      image.append(svg("polygon", { points: `${from},${HEIGHT - 2} ${line} ${to},${HEIGHT - 2}` }));
      image.append(run.length > 1
        ? svg("polyline", { points: line, "vector-effect": "non-scaling-stroke" })
        : svg("circle", { cx: from, cy: y(run[0]), r: 1.5 }));
    }
    this.replaceChildren(image);
  }
}
customElements.define("spark-line", SparkLine);
