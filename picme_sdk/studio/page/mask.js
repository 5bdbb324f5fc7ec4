// The hole as a list of steps. Undo takes the last one off and paints the others again, so history costs no pictures.
//
// A step is {kind: "stroke", erase, size, points}, {kind: "picture", picture} or {kind: "clear"}; all lengths are photo pixels.

const MAX_SIDE = 2048; // longest side that is painted on; a larger photo's mask is scaled up when it is sent
export const INK = "#f0246e";

export class Mask {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.scale = Math.min(1, MAX_SIDE / Math.max(width, height));
    this.canvas = document.createElement("canvas");
    this.canvas.width = Math.max(1, Math.round(width * this.scale));
    this.canvas.height = Math.max(1, Math.round(height * this.scale));
    this.context = this.canvas.getContext("2d");
    this.steps = [];
    this.undone = [];
    this.left = null; // what `recall` put aside
    this.last = null; // where the last stroke ended
  }

  get empty() {
    const painted = this.steps.findLastIndex((step) => step.kind === "picture" || (step.kind === "stroke" && !step.erase));
    return painted < 0 || painted < this.steps.findLastIndex((step) => step.kind === "clear");
  }

  // A straight stroke runs from where the last one ended; it can be moved until it ends.
  begin(point, size, erase, straight) {
    const start = straight && this.last ? this.last : point;
    this.add({ kind: "stroke", erase, size, straight, points: straight ? [start, point] : [point] });
  }

  extend(point) {
    const step = this.steps.at(-1);
    this.last = point;
    if (step.straight) {
      step.points[1] = point;
      this.paintAll();
    } else {
      step.points.push(point);
      this.stroke({ ...step, points: step.points.slice(-2) });
    }
  }

  load(picture) {
    this.add({ kind: "picture", picture });
  }

  clear() {
    this.add({ kind: "clear" });
  }

  add(step) {
    this.steps = [...this.steps, step]; // a new list: a list stands for a hole, in scenes and in the history
    this.undone = [];
    this.left = null;
    this.last = step.points?.at(-1) ?? null;
    this.paint(step);
  }

  // The hole of an earlier result; undo brings back what it takes the place of.
  recall(steps) {
    if (steps === this.steps) return;
    const left = { steps: this.steps, undone: this.undone };
    this.restore(steps);
    this.left = left;
  }

  undo() {
    if (this.left) return this.restore(this.left.steps, this.left.undone);
    if (!this.steps.length) return;
    this.undone.push(this.steps.at(-1));
    this.restore(this.steps.slice(0, -1), this.undone);
  }

  redo() {
    if (!this.undone.length) return;
    this.restore([...this.steps, this.undone.pop()], this.undone);
  }

  restore(steps, undone = []) {
    this.steps = steps;
    this.undone = undone;
    this.left = null;
    this.last = steps.at(-1)?.points?.at(-1) ?? null;
    this.paintAll();
  }

  paintAll() {
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const step of this.steps) this.paint(step);
  }

  paint(step) {
    const { width, height } = this.canvas;
    if (step.kind === "clear") this.context.clearRect(0, 0, width, height);
    else if (step.kind === "picture") this.context.drawImage(step.picture, 0, 0, width, height);
    else this.stroke(step);
  }

  stroke({ erase, size, points }) {
    const pen = this.context;
    pen.save();
    pen.scale(this.canvas.width / this.width, this.canvas.height / this.height);
    pen.globalCompositeOperation = erase ? "destination-out" : "source-over";
    pen.lineWidth = size;
    pen.lineCap = pen.lineJoin = "round";
    pen.strokeStyle = pen.fillStyle = INK;
    pen.beginPath(); // a line of no length is not drawn, a dot is
    pen.arc(points[0].x, points[0].y, size / 2, 0, 2 * Math.PI);
    pen.fill();
    pen.beginPath();
    for (const point of points) pen.lineTo(point.x, point.y);
    pen.stroke();
    pen.restore();
  }

  // A PNG of the photo's size; what is not transparent is the hole.
  async blob() {
    let whole = this.canvas;
    if (this.scale < 1) {
      whole = document.createElement("canvas");
      whole.width = this.width;
      whole.height = this.height;
      whole.getContext("2d").drawImage(this.canvas, 0, 0, this.width, this.height);
    }
    return new Promise((resolve) => whole.toBlob(resolve, "image/png"));
  }
}

// A mask file as a layer to paint: light becomes ink, dark transparent. A file with transparent pixels says it by those instead.
export function maskLayer(bitmap) {
  const layer = document.createElement("canvas");
  layer.width = bitmap.width;
  layer.height = bitmap.height;
  const context = layer.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const pixels = context.getImageData(0, 0, layer.width, layer.height);
  const data = pixels.data;
  let transparent = false;
  for (let i = 3; i < data.length && !transparent; i += 4) transparent = data[i] < 255;
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(INK.slice(at, at + 2), 16));
  for (let i = 0; i < data.length; i += 4) {
    if (!transparent) data[i + 3] = Math.round(0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]);
    [data[i], data[i + 1], data[i + 2]] = [red, green, blue];
  }
  context.putImageData(pixels, 0, 0);
  return layer;
}
