// The large canvas: paints the hole onto the photo by pointer or keyboard, or compares the photo with a result.

import { INK } from "./mask.js";

export class Stage {
  // `changed` is called after every step of the hole, `split` when the comparison's border was moved by hand.
  constructor(canvas, changed, split) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.changed = changed;
    this.moveSplit = split;
    this.size = 40;
    this.erase = false;
    this.split = null; // share of the width that shows the photo as it was; null until a result is shown
    this.photo = this.mask = this.result = this.pointer = null;
    this.cursor = null; // of the keyboard, in photo pixels
    this.penDown = false;
    this.stroking = false;
    this.waiting = false;
    this.listen();
    new ResizeObserver(() => this.fit()).observe(canvas.parentElement);
  }

  open(photo, mask) {
    Object.assign(this, { photo, mask, result: null, cursor: null, split: null, penDown: false });
    this.fit();
  }

  show(result) {
    this.result = result;
    if (result && this.split === null) this.setSplit(result.box[0] / this.photo.width - 0.04); // all of the fill to be seen
    this.draw();
  }

  setSplit(share) {
    this.split = Math.min(1, Math.max(0, share));
    this.moveSplit(this.split);
    this.draw();
  }

  // Ends a stroke that is under way, before the steps change under it.
  lift() {
    this.penDown = this.stroking = false;
  }

  // As large as its place allows; `base` is the photo at that size, so that a brush stroke need not scale the whole photo.
  fit() {
    if (!this.photo) return;
    const place = this.canvas.parentElement.getBoundingClientRect();
    const room = Math.max(220, Math.min(window.innerHeight * (place.width < 600 ? 0.6 : 0.74), 1100));
    const scale = Math.min(place.width / this.photo.width, room / this.photo.height, 4);
    const dense = window.devicePixelRatio || 1;
    this.canvas.style.width = `${Math.round(this.photo.width * scale)}px`;
    this.canvas.style.height = `${Math.round(this.photo.height * scale)}px`;
    this.canvas.width = Math.max(1, Math.round(this.photo.width * scale * dense));
    this.canvas.height = Math.max(1, Math.round(this.photo.height * scale * dense));
    this.scale = this.canvas.width / this.photo.width;
    this.base = document.createElement("canvas");
    this.base.width = this.canvas.width;
    this.base.height = this.canvas.height;
    const pen = this.base.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.photo, 0, 0, this.base.width, this.base.height);
    this.draw();
  }

  draw() {
    if (this.waiting || !this.photo) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.result) this.drawComparison();
      else this.drawPainting();
    });
  }

  drawPainting() {
    const pen = this.context;
    const { width, height } = this.canvas;
    pen.clearRect(0, 0, width, height);
    pen.drawImage(this.base, 0, 0);
    pen.globalAlpha = 0.62;
    pen.drawImage(this.mask.canvas, 0, 0, width, height);
    pen.globalAlpha = 1;
    const at = this.pointer ?? (document.activeElement === this.canvas ? this.cursor : null);
    if (!at) return;
    pen.beginPath();
    pen.arc(at.x * this.scale, at.y * this.scale, Math.max(2, (this.size * this.scale) / 2), 0, 2 * Math.PI);
    pen.lineWidth = 3;
    pen.strokeStyle = "#000a";
    pen.stroke();
    pen.lineWidth = 1.5;
    pen.strokeStyle = this.erase ? "#fff" : INK;
    pen.stroke();
  }

  drawComparison() {
    const pen = this.context;
    const { width, height } = this.canvas;
    const border = Math.round(width * this.split);
    pen.clearRect(0, 0, width, height);
    pen.drawImage(this.base, 0, 0);
    pen.save();
    pen.beginPath();
    pen.rect(border, 0, width - border, height);
    pen.clip();
    const [left, top, right, bottom] = this.result.box.map((edge) => edge * this.scale);
    pen.clearRect(left, top, right - left, bottom - top);
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.result.preview, left, top, right - left, bottom - top);
    pen.restore();
    const line = Math.max(2, Math.round(width / 500));
    pen.fillStyle = "#fffc";
    pen.fillRect(border - line / 2, 0, line, height);
    pen.fillStyle = "#0006";
    pen.fillRect(border + line / 2, 0, 1, height);
  }

  place(event) {
    const frame = this.canvas.getBoundingClientRect();
    return {
      x: ((event.clientX - frame.left) / frame.width) * this.photo.width,
      y: ((event.clientY - frame.top) / frame.height) * this.photo.height,
    };
  }

  listen() {
    const on = (name, does) => this.canvas.addEventListener(name, (event) => this.photo && does(event));
    on("pointerdown", (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      this.canvas.setPointerCapture(event.pointerId);
      this.stroking = true;
      if (this.result) this.drag(event);
      else {
        this.mask.begin(this.place(event), this.size, this.erase, event.shiftKey);
        this.draw();
      }
    });
    on("pointermove", (event) => {
      if (!event.isPrimary) return;
      this.pointer = event.pointerType === "touch" ? null : this.place(event);
      if (this.stroking && this.result) this.drag(event);
      else if (this.stroking) {
        const moves = event.getCoalescedEvents?.() ?? [];
        for (const move of moves.length ? moves : [event]) this.mask.extend(this.place(move));
      }
      this.draw();
    });
    const stop = () => {
      if (this.stroking && !this.result) this.changed();
      this.stroking = false;
    };
    on("pointerup", stop);
    on("pointercancel", () => {
      if (this.stroking && !this.result) this.mask.undo(); // a pinch began as a stroke
      stop();
    });
    on("pointerleave", () => {
      this.pointer = null;
      this.draw();
    });
    on("blur", () => {
      this.penDown = false;
      this.draw();
    });
    on("focus", () => this.draw());
    on("keydown", (event) => this.key(event));
  }

  drag(event) {
    this.setSplit(this.place(event).x / this.photo.width);
  }

  key(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (this.result) {
      if (!way || !way[0]) return;
      this.setSplit(this.split + way[0] * 0.05);
    } else if (way) {
      const step = Math.max(1, this.size / 4);
      const from = this.cursor ?? { x: this.photo.width / 2, y: this.photo.height / 2 };
      this.cursor = {
        x: Math.min(this.photo.width, Math.max(0, from.x + way[0] * step)),
        y: Math.min(this.photo.height, Math.max(0, from.y + way[1] * step)),
      };
      if (this.penDown) this.mask.extend(this.cursor);
    } else if (event.key === " ") {
      this.cursor ??= { x: this.photo.width / 2, y: this.photo.height / 2 };
      this.penDown = !this.penDown;
      if (this.penDown) this.mask.begin(this.cursor, this.size, this.erase, event.shiftKey);
    } else return;
    event.preventDefault();
    if (this.penDown || event.key === " ") this.changed();
    this.draw();
  }
}
