"""What an export reports: report.md, the inputs for polygraphy, and the polygraphy commands that benchmark the bundle."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote

import numpy as np
from polygraphy.json import to_json

from picme_sdk.bundle.manifest import Manifest
from picme_sdk.contract import GRAPHS


def report(manifest: Manifest, seconds: dict[str, float]) -> str:
    """report.md: files, gates and the time of each step."""
    lines = [f"# {manifest.name}", "", f"{manifest.made_by}", "", "| file | bytes |", "|---|---|"]
    lines += [f"| {entry.file} | {entry.bytes:,} |" for entry in manifest.listed()]
    lines += ["", "| graph | compared | measure | worst input | value | limit |", "|---|---|---|---|---|---|"]
    for check in manifest.verified:
        lines.append(
            f"| {check.graph} | {check.compared} | {check.measure} | {check.input} | {check.value:.3g} | {check.limit:.3g} |"
        )
    if not manifest.verified:
        lines.append("| (not verified: --no-verify) | | | | | |")
    lines += ["", "| step | seconds |", "|---|---|"]
    lines += [f"| {step} | {value:.1f} |" for step, value in seconds.items()]
    return "\n".join(lines) + "\n"


def polygraphy_inputs(manifest: Manifest) -> dict[str, bytes]:
    """One input file per graph in polygraphy's own format, with the right names and types for --load-inputs."""
    random = np.random.default_rng(0)
    files = {}
    for graph in GRAPHS:
        feed = {}
        for tensor in manifest.graph(graph).inputs:
            shape = [1 if size == "n" else int(size) for size in tensor.shape]
            if tensor.dtype == "uint8":
                feed[tensor.name] = random.integers(0, 256, shape, np.uint8)
            else:
                feed[tensor.name] = random.standard_normal(shape).astype(tensor.dtype)
        files[f"inputs/{graph}.json"] = json.dumps(json.loads(to_json([feed]))).encode()
    return files


def polygraphy_commands(manifest: Manifest, out: Path) -> list[str]:
    """Shell lines that measure each graph; engines need their own GPU."""
    commands = []
    if out.suffix == ".picme":
        commands.append(f"python -m zipfile -e {quote(str(out))} {quote(str(out.with_suffix('')))}")
        out = out.with_suffix("")
    many = "--sequential-runners --warm-up 5 --iterations 50"
    six = f" --input-shapes z:[{min(6, manifest.max_batch)},{manifest.latent}]"
    for graph in GRAPHS:
        file, inputs = (quote(f"{out}/{name}") for name in (manifest.graph(graph).file, f"inputs/{graph}.json"))
        commands.append(f"polygraphy run {file} --onnxrt {many}{six if graph == 'decoder' else ''}")
        commands.append(f"polygraphy run {file} --onnxrt --load-inputs {inputs}")
    for engine in manifest.engines:
        rtx = "POLYGRAPHY_USE_TENSORRT_RTX=1 " if engine.builder == "tensorrt_rtx" else ""
        shape = six if engine.graph == "decoder" else ""
        commands.append(f"{rtx}polygraphy run {quote(f'{out}/{engine.file}')} --model-type engine --trt {many}{shape}")
    return commands
