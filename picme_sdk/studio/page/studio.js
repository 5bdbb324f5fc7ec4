// The page: what is open, what was asked, what came back.
//
// A photo is encoded again only when its hole has changed; then any number of results are asked of that scene.

import { ApiError, blob, json, results, toBase64 } from "./api.js";
import { bars, placeholders, thumbnail, walkable } from "./gallery.js";
import { Mask, maskLayer } from "./mask.js";
import { Stage } from "./stage.js";

const KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const MAX_HISTORY = 200;

const $ = (id) => document.getElementById(id);

let photo = null; // {bitmap, base64, stem}
let mask = null;
let scene = null; // as the server described it, and the mask's `steps` that it was made with
let chosen = null; // {result, button}
let blendFrom = null; // the first result, while the second is being chosen
let asking = null; // AbortController of the request under way
let limits = { max_pixels: Infinity };
let made = 0; // results of this photo so far

const stage = new Stage($("view"), refresh, (split) => ($("split").value = split * 100));

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

function refresh() {
  const none = !mask;
  $("undo").disabled = none || !(mask.steps.length || mask.left);
  $("redo").disabled = none || !mask.undone.length;
  $("clear").disabled = none || mask.empty;
  $("load-mask").disabled = none;
  $("complete").disabled = !asking && (none || mask.empty);
  $("complete").textContent = asking ? "Stop" : "Complete";
  $("brush").setAttribute("aria-pressed", !stage.erase);
  $("eraser").setAttribute("aria-pressed", stage.erase);
  $("compare").hidden = !stage.result;
  $("keys").hidden = none || Boolean(stage.result);
  $("blend").setAttribute("aria-pressed", Boolean(blendFrom));
  stage.draw();
}

// What went wrong, in words, wherever it went wrong.
async function attempt(work) {
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") {
      const text = error instanceof ApiError ? error.message.split(" | ").join(" — ") : `Something failed: ${error.message}`;
      say(text, true);
    }
  }
  refresh();
}

// Opening

async function openPhoto(file) {
  if (!KINDS.includes(file.type)) throw new ApiError(415, "That is no PNG, JPEG, WebP, GIF or BMP picture.");
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new ApiError(400, "That picture can't be read.");
  });
  if (bitmap.width * bitmap.height > limits.max_pixels) {
    throw new ApiError(413, `That photo has more than ${limits.max_pixels / 1e6} million pixels; shrink it first.`);
  }
  asking?.abort();
  photo = { bitmap, base64: await toBase64(file), stem: (file.name || "photo").replace(/\.[^.]*$/, "") };
  mask = new Mask(bitmap.width, bitmap.height);
  scene = chosen = blendFrom = null;
  made = 0;
  for (const list of ["results", "kept", "history"]) $(list).replaceChildren();
  for (const part of ["empty", "mixture", "made", "keeping", "actions"]) $(part).hidden = true;
  const side = Math.min(bitmap.width, bitmap.height);
  $("size").max = Math.max(8, Math.round(side / 2));
  setSize(Math.max(4, side / 8));
  stage.open(bitmap, mask);
  say("Paint what should be filled.");
}

async function openMask(file) {
  const bitmap = await createImageBitmap(file);
  if (bitmap.width !== mask.width || bitmap.height !== mask.height) {
    throw new ApiError(400, `The mask is ${bitmap.width}x${bitmap.height}, the photo ${mask.width}x${mask.height}: make them equal.`);
  }
  mask.load(maskLayer(bitmap));
  paint();
}

// Asking

async function encoded(signal) {
  if (scene?.steps === mask.steps) return scene;
  const { steps } = mask;
  const body = { photo: photo.base64, mask: await toBase64(await mask.blob()) };
  scene = { ...(await json("/api/scenes", body, signal)), steps };
  bars($("bars"), scene.primitives, (primitive) => ask(`Only idea ${primitive}`, "samples", wanted({ primitive })));
  $("ambiguity").textContent = `About ${scene.ambiguity.toFixed(1)} equally likely answers.`;
  $("encoded").textContent = `Encoded in ${scene.encode_ms.toFixed(0)} ms.`;
  $("mixture").hidden = false;
  return scene;
}

// A request of the scene; one that the server has forgotten is made again.
async function* fromScene(path, body, signal) {
  for (let again = true; ; again = false) {
    const { id } = await encoded(signal);
    try {
      yield* results(`/api/scenes/${id}/${path}`, body, signal);
      return;
    } catch (error) {
      if (error.status !== 404 || !again) throw error;
      scene = null;
    }
  }
}

const wanted = (more = {}) => ({
  n: $("n").valueAsNumber,
  strategy: $("strategy").value,
  temperature: $("temperature").valueAsNumber,
  ...more,
});

function ask(title, path, body, count = body.n) {
  return attempt(async () => {
    asking?.abort();
    stage.lift();
    const own = (asking = new AbortController());
    const list = $("results");
    blendFrom = null;
    $("made-title").textContent = title;
    $("made").hidden = false;
    $("actions").hidden = true;
    placeholders(list, count);
    say("Working…");
    refresh();
    const start = performance.now();
    let came = 0;
    try {
      for await (const result of fromScene(path, body, own.signal)) {
        if (own.signal.aborted) return;
        list.children[came]?.replaceWith(entry(result));
        came++;
        say(`${came} of ${count}`);
      }
      const took = Math.round(performance.now() - start);
      say(`${came} ${came === 1 ? "result" : "results"} in ${took} ms. Choose one.`);
    } finally {
      if (asking === own) {
        asking = null;
        list.querySelectorAll(".coming").forEach((item) => item.remove());
        if (own.signal.aborted) say("Stopped.");
      }
    }
  });
}

// Results

function entry(result) {
  made++;
  result.steps = scene.steps;
  const number = made;
  const item = thumbnail(photo.bitmap, result, number, (event) => choose(result, event.currentTarget));
  remember($("history"), result, number);
  while ($("history").children.length > MAX_HISTORY) $("history").lastElementChild.remove();
  return item;
}

// In history and among the kept, a result is its token and its hole: choosing it replays it.
function remember(list, result, number) {
  const { steps, token } = result;
  const again = (event) => {
    const button = event.currentTarget;
    attempt(async () => {
      mask.recall(steps);
      for await (const replayed of fromScene("replay", { token })) {
        choose(Object.assign(replayed, { steps }), button);
        say("Replayed.");
      }
    });
  };
  list.prepend(thumbnail(photo.bitmap, result, number, again));
}

function choose(result, button) {
  if (blendFrom && blendFrom !== result) {
    const [first, second] = [blendFrom, result];
    if (first.steps !== second.steps) return say("Those two fill different holes; choose one of the same hole.", true);
    return ask(`From idea ${first.primitive} to idea ${second.primitive}`, "interpolation", { first: first.token, second: second.token, steps: 6 }, 6);
  }
  chosen?.button?.setAttribute("aria-pressed", "false");
  chosen = { result, button };
  button?.setAttribute("aria-pressed", "true");
  mask.recall(result.steps);
  $("made").hidden = $("actions").hidden = false;
  $("token").textContent = result.token;
  stage.lift();
  stage.show(result);
  refresh();
}

const withChosen = (work) => () => chosen && attempt(() => work(chosen.result));

const actions = {
  more: withChosen((result) => {
    const body = { token: result.token, n: $("n").valueAsNumber, strength: $("strength").valueAsNumber };
    return ask(`More like idea ${result.primitive}`, "variations", body);
  }),
  only: withChosen(({ primitive }) => ask(`Only idea ${primitive}`, "samples", wanted({ primitive }))),
  blend: withChosen((result) => {
    blendFrom = blendFrom ? null : result;
    say(blendFrom ? "Choose the second result." : "");
  }),
  keep: withChosen((result) => {
    $("keeping").hidden = false;
    remember($("kept"), result, $("kept").children.length + 1);
    say("Kept.");
  }),
  download: withChosen(async (result) => {
    const { id } = await encoded();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await blob(`/api/scenes/${id}/image`, { token: result.token }));
    link.download = `${photo.stem}-idea${result.primitive}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    say(`${link.download} has its token inside.`);
  }),
  copy: withChosen(async (result) => {
    await navigator.clipboard.writeText(result.token);
    say("Token copied.");
  }),
};

// Painting

function paint() {
  stage.lift();
  stage.show(null);
  refresh();
}

function setSize(size) {
  $("size").value = size;
  stage.size = $("size").valueAsNumber;
  stage.draw();
}

function setTool(erase) {
  stage.erase = erase;
  paint();
}

const edit = (change) => () => {
  if (!mask) return;
  stage.lift();
  change();
  paint();
};

const edits = { undo: edit(() => mask.undo()), redo: edit(() => mask.redo()), clear: edit(() => mask.clear()) };

function complete() {
  if (asking) asking.abort();
  else if (mask && !mask.empty && $("ask").reportValidity()) ask("Results", "samples", wanted());
}

// Wiring

for (const [id, does] of Object.entries({ ...actions, ...edits })) $(id).addEventListener("click", does);
$("brush").addEventListener("click", () => setTool(false));
$("eraser").addEventListener("click", () => setTool(true));
$("back").addEventListener("click", paint);
$("size").addEventListener("input", () => setSize($("size").valueAsNumber));
$("split").addEventListener("input", () => stage.setSplit($("split").valueAsNumber / 100));
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  complete();
});
$("replay").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!mask || mask.empty) return say("Paint the hole of that token first.", true);
  ask("Replayed", "replay", { token: $("replay-token").value.trim() }, 1);
});

function chooser(input, does, ...buttons) {
  for (const button of buttons) $(button).addEventListener("click", () => $(input).click());
  $(input).addEventListener("change", () => {
    const [file] = $(input).files;
    $(input).value = "";
    if (file) attempt(() => does(file));
  });
}
chooser("photo-file", openPhoto, "open", "open-too");
chooser("mask-file", openMask, "load-mask");

window.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("over");
});
window.addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("over"));
window.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  const [file] = event.dataTransfer.files;
  if (file) attempt(() => openPhoto(file));
});
window.addEventListener("paste", (event) => {
  const [file] = event.clipboardData.files;
  if (file) attempt(() => openPhoto(file));
});

const KEYS = {
  b: () => setTool(false),
  e: () => setTool(true),
  "[": () => setSize(stage.size / 1.2),
  "]": () => setSize(stage.size * 1.2 + 1),
  Escape: paint,
  m: actions.more,
  o: actions.only,
  x: actions.blend,
  k: actions.keep,
  d: actions.download,
};

window.addEventListener("keydown", (event) => {
  const command = event.ctrlKey || event.metaKey;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const typing = event.target.matches("input[type=text], input[type=number], select");
  if (!photo || event.altKey) return;
  let does = null;
  if (command && key === "Enter") does = complete;
  else if (command && !typing && key === "z") does = event.shiftKey ? edits.redo : edits.undo;
  else if (command && !typing && key === "y") does = edits.redo;
  else if (!command && !typing) does = KEYS[key];
  if (!does) return;
  event.preventDefault();
  does();
});

for (const list of ["results", "kept", "history"]) walkable($(list));

attempt(async () => {
  const model = await json("/api/model");
  limits = model;
  $("model").textContent = `${model.name} · ${model.image_size}×${model.image_size} · ${model.primitives} ideas · ${model.device}`;
  $("model").title = `${model.backend}. ${model.limits}`;
  $("n").max = model.max_results;
  const first = await blob("/api/photo");
  if (first) await openPhoto(new File([first], "photo", { type: first.type }));
});
