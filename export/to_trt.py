"""Turn a training checkpoint into a verified bundle: the command.

    python export/to_trt.py --ckpt runs/pets/last.safetensors [--out DIR|FILE.picme] [--precision fp16|fp32]
        [--builder auto|tensorrt|rtx|none] [--target sm_86,sm_89] [--max-batch 16] [--int8 CALIBRATION_DIR] [--no-verify] [--force]
    python export/to_trt.py --from-bundle BUNDLE --out DIR [--builder ...]      add engines to a bundle, for the card here

Exit codes: 0 a bundle was written, 2 nothing was written and the last line says why.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote

if not __package__:  # run as a file: the checkout is the import root, not this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import onnx
import torch
from rich.console import Console
from rich.markup import escape

from export import engine as engines
from export.calibrate import calibration_feeds
from export.graphs import graph_specs
from export.onnx_files import half, to_int8, to_onnx
from export.report import polygraphy_commands, polygraphy_inputs, report
from export.verify import verify
from export.write import check_free, entry, write_bundle
from picme_sdk import __version__
from picme_sdk.bundle.bundle import Bundle
from picme_sdk.bundle.manifest import Card, Check, EngineFile, GraphFile, Manifest, hash_of_graphs
from picme_sdk.cli.terminal import standard_streams
from picme_sdk.contract import BUNDLE_FORMAT, MAX_BATCH, MAX_KNOWS_LENGTH
from picme_sdk.errors import ExportError, PicmeError
from training.checkpoint import load_weights

HEAVY = ("encoder", "decoder")  # the graphs that exist in other precisions, too
SUFFIX = {"float32": "onnx", "float16": "fp16.onnx", "int8": "int8.onnx"}


class Export:
    """The steps in order, with their times and one status line."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.console = Console(stderr=True, soft_wrap=True, markup=False)
        self.seconds: dict[str, float] = {}
        self.say: Callable[[str], None] = lambda text: None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step and show its status; `say` adds to the status line."""
        start = time.monotonic()
        with self.console.status(name) as status:
            self.say = lambda text: status.update(escape(f"{name}: {text}"))
            yield
        self.seconds[name] = time.monotonic() - start
        self.console.print(f"{name}: {self.seconds[name]:.1f} s", highlight=False)

    def from_checkpoint(self) -> tuple[Manifest, dict[str, bytes]]:
        options = self.options
        model, config, note = load_weights(options.ckpt)
        specs = graph_specs(model)
        with self.step("float32 ONNX"):
            graphs = {"float32": to_onnx(model, options.max_batch)}
        if options.precision == "fp16":
            with self.step("float16 ONNX"):
                graphs["float16"] = to_onnx(half(model), options.max_batch, HEAVY)
        if options.int8:
            with self.step("int8 ONNX"):
                feeds = calibration_feeds(graphs["float32"], options.int8, model.config.image_size)
                graphs["int8"] = {name: to_int8(graphs["float32"][name], feeds[name]) for name in HEAVY}
        checks: list[Check] = []
        if options.verify:
            with self.step("verification"):
                checks, refused = verify(specs, graphs, options.max_batch)
            if refused:
                self.console.print(f"int8 is left out: {refused}", style="yellow", highlight=False, soft_wrap=True)
        elif options.int8:
            raise ExportError("--int8 with --no-verify", "int8 to pass its quality gate", "leave one of them out")
        contents: dict[str, bytes] = {}
        listed: list[GraphFile] = []
        tensors = {(spec.name, "float32"): spec for spec in specs}
        tensors |= {(spec.name, "float16"): spec for spec in graph_specs(half(model))}
        for precision, protos in graphs.items():
            for name, proto in protos.items():
                spec = tensors.get((name, precision), tensors[name, "float32"])
                data, file = proto.SerializeToString(deterministic=True), f"{name}.{SUFFIX[precision]}"
                contents[file] = data
                listed.append(
                    GraphFile(
                        graph=name,
                        precision=precision,
                        storage="float16" if precision == "float16" else "float32",
                        **entry(file, data),
                        inputs=spec.inputs,
                        outputs=spec.outputs,
                    )
                )
        progress = note.get("progress", {})
        card = Card(
            training_data=options.data_note,
            training=f"{progress.get('images', 0):,} images, {progress.get('seconds', 0) / 3600:.2f} hours in the last run, configuration {config.name}",
            metrics=str(note.get("numbers", ""))[:2000],
            limits=options.limits_note,
        )
        manifest = Manifest(
            format=BUNDLE_FORMAT, name=config.name, knows=options.knows, licence=options.licence,
            model_id=hash_of_graphs(tuple(listed)), image_size=model.config.image_size,
            primitives=model.config.primitives, latent=model.config.latent, max_batch=options.max_batch, ambiguity=None,
            graphs=tuple(listed), engines=(), files=(), verified=tuple(checks), measured=(), card=card, seal="0" * 64,
            made_by=f"picme-sdk {__version__}, torch {torch.__version__.split('+')[0]}, onnx {onnx.__version__}",
        )  # fmt: skip
        return manifest, contents

    def from_bundle(self) -> tuple[Manifest, dict[str, bytes]]:
        bundle = Bundle(self.options.from_bundle)
        bundle.verify()
        manifest = bundle.manifest
        entries: list[GraphFile | EngineFile] = [*manifest.graphs, *manifest.engines]
        return manifest, {entry.file: bundle.read(entry) for entry in entries}

    def add_engines(self, manifest: Manifest, contents: dict[str, bytes], builder_name: str) -> Manifest:
        """Engines of the wanted precision; the mixture, which has no FP16 version, stays in float32."""
        targets = tuple(t for t in self.options.target.split(",") if t)
        builder = engines.Builder(builder_name, targets, lambda text: self.say(text))
        wanted = {"fp16": "float16", "fp32": "float32"}[self.options.precision]
        folder = (
            f"engines/{builder.name}-{builder.version.replace('+', '-')}-{builder.target.replace('+', '-').strip('-')}"
        )
        built = []
        for name in ("encoder", "mixture", "decoder"):
            precision = wanted if any((g.graph, g.precision) == (name, wanted) for g in manifest.graphs) else "float32"
            source = manifest.graph(name, precision)
            engine = builder.build(name, contents[source.file], manifest.latent, manifest.max_batch)
            file = f"{folder}/{name}.engine"
            contents[file] = engine.data
            built.append(
                EngineFile(
                    graph=name, precision=precision, **entry(file, engine.data), inputs=source.inputs, outputs=source.outputs,
                    builder=engine.builder, version=engine.version, target=engine.target, profiles=(engine.profile,), source=source.sha256,
                )
            )  # fmt: skip
        kept = [e for e in manifest.engines if e.file not in {new.file for new in built}]
        return replace(manifest, engines=(*kept, *built))

    def run(self) -> None:
        options = self.options
        out = options.out
        check_free(out, options.force)
        builder_name = engines.choose(options.builder)
        manifest, contents = self.from_bundle() if options.from_bundle else self.from_checkpoint()
        if builder_name:
            with self.step("engines"):
                manifest = self.add_engines(manifest, contents, builder_name)
        extras = {"report.md": report(manifest, self.seconds).encode(), **polygraphy_inputs(manifest)}
        write_bundle(out, manifest, contents, extras, options.force)
        size = sum(e.bytes for e in manifest.listed()) / 1e6
        self.console.print(f"{out}: {manifest.name}, {len(manifest.engines)} engines, {size:.1f} MB", highlight=False)
        for check in manifest.verified:
            self.console.print(
                f"  {check.graph:8} {check.compared:16} {check.measure:8} {check.value:10.3g} (limit {check.limit:.3g}; {check.input})",
                highlight=False,
            )
        if not manifest.engines:
            print(
                f"no engines were built; on a machine with TensorRT: python export/to_trt.py --from-bundle {quote(str(out))} --out {quote(f'{out}-trt')}"
            )
        print("benchmark with:")
        for command in polygraphy_commands(manifest, out):
            print(f"  {command}")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="checkpoint -> verified bundle of ONNX graphs and TensorRT engines")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--ckpt", type=Path, help="checkpoint of training/train.py (.safetensors, or .pt of plain tensors)"
    )
    source.add_argument("--from-bundle", type=Path, help="use the graphs of this bundle and build engines only")
    parser.add_argument(
        "--out", type=Path, help="folder, or FILE.picme; default: beside the checkpoint, named after it"
    )
    parser.add_argument(
        "--precision",
        choices=("fp16", "fp32"),
        default="fp16",
        help="of the engines (fp16); float32 ONNX is always there",
    )
    parser.add_argument("--builder", choices=("auto", "tensorrt", "rtx", "none"), default="auto")
    parser.add_argument(
        "--target", default="", help="compute capabilities for rtx, such as sm_86,sm_89 (all since Ampere)"
    )
    parser.add_argument("--max-batch", type=int, default=16, help="largest number of results in one decoder call (16)")
    parser.add_argument(
        "--int8", type=Path, metavar="CALIBRATION_DIR", help="also quantise for CPUs, calibrated on these pictures"
    )
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="skip the gates; the manifest says so")
    parser.add_argument("--force", action="store_true", help="replace an existing bundle")
    parser.add_argument("--knows", default="", help="what the model is for, in one line for people")
    parser.add_argument("--licence", default="unspecified", help="of the weights, for the manifest")
    parser.add_argument("--data-note", default="", help="training data and attribution, for the model card")
    parser.add_argument("--limits-note", default="", help="known weaknesses of the model, for the model card")
    options = parser.parse_args(argv)
    if not 1 <= options.max_batch <= MAX_BATCH:
        parser.error(f"--max-batch {options.max_batch} | expected 1 to {MAX_BATCH} | choose another")
    if len(options.knows) > MAX_KNOWS_LENGTH or not options.knows.isprintable():
        parser.error(
            f"--knows {options.knows[:60]!r} | expected one line of at most {MAX_KNOWS_LENGTH} characters | shorten it"
        )
    if options.from_bundle and not options.out:
        parser.error("--from-bundle needs --out")
    if options.out is None:
        options.out = options.ckpt.with_suffix(".bundle")
    return options


def main() -> int:
    options = arguments()
    try:
        with standard_streams():
            Export(options).run()
    except (PicmeError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"error: {error}", style="red", highlight=False, markup=False)
        return 2
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
