// Thumbnails and the bar chart of the mixture.

const SIDE = 264; // pixels of a thumbnail's canvas

export const percent = (weight) => `${(weight * 100).toFixed(weight < 0.095 ? 1 : 0)} %`;

// The part of the photo around the hole, as a square, with the result in it. Only that part is drawn: the photo may be large.
function picture(photo, { box: [left, top, right, bottom], preview }) {
  const longest = Math.max(right - left, bottom - top);
  const side = Math.min(Math.max(longest * 1.35, 48), Math.max(photo.width, photo.height));
  const start = (low, high, length) =>
    side >= length ? (length - side) / 2 : Math.min(Math.max((low + high - side) / 2, 0), length - side);
  const [x, y] = [start(left, right, photo.width), start(top, bottom, photo.height)];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.scale(SIDE / side, SIDE / side);
  pen.drawImage(photo, x, y, side, side, 0, 0, side, side);
  pen.translate(-x, -y);
  pen.clearRect(left, top, right - left, bottom - top);
  pen.drawImage(preview, left, top, right - left, bottom - top);
  return canvas;
}

// A list entry with a button: picture, idea, weight, log-density.
export function thumbnail(photo, result, number, choose) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "thumb";
  button.setAttribute("aria-pressed", "false");
  const density = result.log_density.toFixed(1);
  button.setAttribute(
    "aria-label",
    `Result ${number}: idea ${result.primitive}, weight ${percent(result.weight)}, log-density ${density}`,
  );
  button.append(
    picture(photo, result),
    line(`idea ${result.primitive}`, percent(result.weight)),
    line("log p", density),
  );
  button.addEventListener("click", choose);
  const item = document.createElement("li");
  item.append(button);
  return item;
}

function line(name, value) {
  const made = document.createElement("span");
  const strong = document.createElement("b");
  strong.textContent = value;
  made.append(`${name} `, strong);
  return made;
}

export function placeholders(list, count) {
  list.replaceChildren(
    ...Array.from({ length: count }, () => {
      const item = document.createElement("li");
      item.className = "coming";
      return item;
    }),
  );
}

// One bar a primitive, by number; choosing a bar asks for that idea only.
export function bars(place, primitives, choose) {
  const heaviest = Math.max(...primitives.map(({ weight }) => weight));
  const ordered = [...primitives].sort((a, b) => a.primitive - b.primitive);
  place.replaceChildren(
    ...ordered.map(({ primitive, weight }) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.primitive = primitive;
      button.title = `Only idea ${primitive} (weight ${percent(weight)})`;
      button.setAttribute("aria-label", button.title);
      const bar = document.createElement("i");
      bar.style.height = `${Math.max(2, (weight / heaviest) * 44)}px`;
      const share = document.createElement("span");
      share.textContent = Math.round(weight * 100);
      const number = document.createElement("b");
      number.textContent = primitive;
      button.append(share, bar, number);
      button.addEventListener("click", () => choose(primitive));
      return button;
    }),
  );
}

// Arrow keys walk through a list of thumbnails.
export function walkable(list) {
  list.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!way) return;
    const all = [...list.querySelectorAll("button")];
    all[all.indexOf(document.activeElement) + way]?.focus();
    event.preventDefault();
  });
}
