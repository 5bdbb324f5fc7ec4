"""Many photos on many workers, on Ray Data: names go out, each worker reads, completes and writes, rows of a report come back.

What is finished is known by the files themselves, so a job that was broken off is simply started again: photos whose results exist, and
photos that were set aside in OUT/failed, are not touched. The report is made of the same facts, and is the same whether the job ran once or
was started three times. Ray gives a dead worker's photos to another; one that kills its workers again and again is set aside too.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from picme_sdk import token as tokens
from picme_sdk.batch import WORKERS, result_path
from picme_sdk.completer import Completer
from picme_sdk.contract import (
    DEFAULT_BATCH_RESULTS,
    DEFAULT_DEVICE,
    DEFAULT_STRATEGY,
    DEFAULT_TEMPERATURE,
    IMAGE_SUFFIXES,
    Device,
    Precision,
    Strategy,
)
from picme_sdk.errors import BadArgument, BadMask, PicmeError
from picme_sdk.files import replacing
from picme_sdk.imaging import load, save_png
from picme_sdk.masks import MaskLike
from picme_sdk.sampling import Draw
from picme_sdk.scale.cluster import Workers, imported
from picme_sdk.scale.places import Place

BLOCK = 16  # photos of one task: what a dead worker's successor looks at again
DEATHS = 2  # of workers at one photo, and one before it was known which, until it is set aside
FAILED = "failed"  # folder, in the output, of what was set aside

Row = dict[
    str, Any
]  # photo, state ("done" or "failed"), error, results, fresh (made by this job, not by an earlier one)


@dataclass(frozen=True)
class BulkJob:
    """What to do with each photo, and with which model. The bundle must be at the same path on every machine."""

    photos: Place
    out: Place
    mask: Place | None  # one file for all, a folder with a mask of the same name for each, or None: transparent pixels
    n: int = DEFAULT_BATCH_RESULTS
    seed: int = 0
    strategy: Strategy = DEFAULT_STRATEGY
    temperature: float = DEFAULT_TEMPERATURE
    bundle: str | None = None
    device: Device = DEFAULT_DEVICE
    threads: int | None = None
    precision: Precision | None = None

    def targets(self, photo: str) -> list[str]:
        return [result_path(Path(), Path(photo), number + 1).name for number in range(self.n)]


def photos_of(place: Place) -> list[str]:
    """Names of the pictures in a folder, as `picme batch` finds them."""
    if not place.is_folder():
        raise BadArgument(f"{place}", "a folder of photos", "check the path")
    return [name for name in place.names() if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")]


def run_bulk(job: BulkJob, workers: Workers, done: Callable[[Row], None]) -> None:
    """Complete every photo of the job on the connected cluster. `done` gets each photo's row, in the order of their names."""
    names = photos_of(job.photos)
    if not names:
        return
    ray = imported()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    blocks = -(-len(names) // BLOCK)
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=workers.count, initial_size=min(workers.count, blocks))
    deaths = ray.remote(num_cpus=0)(Deaths).remote()
    dataset = ray.data.from_blocks([_block(names[i : i + BLOCK]) for i in range(0, len(names), BLOCK)])
    rows = dataset.map_batches(
        Worker, fn_constructor_args=(job, deaths), batch_size=None, batch_format="pyarrow", compute=pool, **workers.resources
    )  # fmt: skip
    for row in rows.iter_rows():
        done({**row, "results": row["results"].tolist() if hasattr(row["results"], "tolist") else row["results"]})


def _block(names: list[str]) -> Any:
    import pyarrow

    return pyarrow.table({"photo": names})


def schema() -> Any:
    """Of the report's rows."""
    import pyarrow as pa

    result = pa.struct([("file", pa.string()), ("primitive", pa.int32()), ("token", pa.string())])
    fields = [("photo", pa.string()), ("state", pa.string()), ("error", pa.string()), ("results", pa.list_(result))]
    return pa.schema([*fields, ("fresh", pa.bool_())])


class Deaths:
    """Counts beginnings without an end: what was begun twice was in a worker's hands when it died. Lives beside the driver."""

    def __init__(self) -> None:
        self._begun: dict[str, int] = {}

    def begin(self, what: str) -> int:
        """How many died at it."""
        self._begun[what] = self._begun.get(what, -1) + 1
        return self._begun[what]

    def end(self, what: str) -> None:
        self._begun.pop(what, None)


class Worker:
    """One model, sized to its share of a machine. Ray Data keeps one in each process of the pool and gives it block after block."""

    def __init__(self, job: BulkJob, deaths: Any) -> None:
        self.job, self.deaths = job, deaths
        self.completer = Completer(job.bundle, job.device, job.threads, job.precision)
        self.failed = job.out / FAILED
        self.mask = job.mask.read() if job.mask is not None and job.mask.has() else None  # one for all

    def __call__(self, block: Any) -> Any:
        import pyarrow

        names = block.column("photo").to_pylist()
        if self._died(f"block {names[0]}"):  # whose fault it was shows one by one
            rows = list(self._carefully(names))
        else:
            with ThreadPoolExecutor(WORKERS) as pool:
                rows = list(pool.map(self.complete, names))
        self._tell("end", f"block {names[0]}")
        return pyarrow.Table.from_pylist(rows, schema())

    def _tell(self, method: str, what: str) -> Any:
        return imported().get(getattr(self.deaths, method).remote(what))

    def _died(self, what: str) -> int:
        return int(self._tell("begin", what))

    def _carefully(self, names: list[str]) -> Iterator[Row]:
        for name in names:
            if self._died(name) < DEATHS:
                yield self.complete(name)
            else:
                yield self.set_aside(name, f"its worker died {DEATHS} times at it")
            self._tell("end", name)

    def complete(self, name: str) -> Row:
        """One photo: what exists is left alone, and every fault becomes a row."""
        try:
            targets, out = self.job.targets(name), self.job.out
            missing = [target for target in targets if not out.has(target)]
            if missing and self.failed.has(f"{name}.json"):
                error = json.loads(self.failed.read(f"{name}.json"))["error"]
                return {"photo": name, "state": "failed", "error": error, "results": [], "fresh": False}
            if missing:
                self._make(name, targets, missing)
            results = [self._described(target) for target in targets]
        except Exception as error:  # whatever one file does, the others go on
            told = str(error) if isinstance(error, (PicmeError, OSError)) else f"{type(error).__name__}: {error}"
            return self.set_aside(name, told)
        return {"photo": name, "state": "done", "error": "", "results": results, "fresh": bool(missing)}

    def set_aside(self, name: str, error: str) -> Row:
        self.failed.write(f"{name}.json", json.dumps({"photo": name, "error": error}).encode() + b"\n")
        return {"photo": name, "state": "failed", "error": error, "results": [], "fresh": True}

    def _make(self, name: str, targets: list[str], missing: list[str]) -> None:
        job = self.job
        photo = load(job.photos.read(name)).pixels
        results = self.completer.encode(photo, self._mask(name)).sample(
            job.n, job.seed, job.strategy, None, job.temperature
        )
        with tempfile.TemporaryDirectory() as folder:
            for target, result in zip(targets, results, strict=True):
                if target in missing:
                    made = Path(folder) / "result.png"
                    save_png(result.image, made, result.token)
                    job.out.write(target, made.read_bytes())

    def _mask(self, name: str) -> MaskLike:
        mask = self.job.mask
        if mask is None or self.mask is not None:
            return self.mask
        for candidate in (name, *(f"{Path(name).stem}{suffix}" for suffix in IMAGE_SUFFIXES)):
            if mask.has(candidate):
                return mask.read(candidate)
        raise BadMask(f"no mask for {name} in {mask}", f"{Path(name).stem}.png or the photo's own name", "add it")

    def _described(self, target: str) -> dict[str, Any]:
        """Of a result that exists: its token stands in the file."""
        with self.job.out.open(target) as stream, Image.open(stream) as picture:
            token = picture.info.get("picme-token", "")
        recipe, _ = tokens.decode(token, self.completer.manifest.model_id)
        return {"file": target, "primitive": recipe.primitives[0] if isinstance(recipe, Draw) else None, "token": token}


class Report:
    """Rows into a Parquet file, or into JSON as `picme batch` writes it; the file appears when `close` is called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows.append({key: value for key, value in row.items() if key != "fresh"})

    def close(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary:
            temporary.write_bytes(self._parquet() if self.path.suffix == ".parquet" else self._json())

    def _parquet(self) -> bytes:
        import pyarrow
        from pyarrow import parquet

        names = [name for name in schema().names if name != "fresh"]
        table = pyarrow.Table.from_pylist(self.rows, pyarrow.schema([schema().field(name) for name in names]))
        stream = io.BytesIO()
        parquet.write_table(table, stream)
        return stream.getvalue()

    def _json(self) -> bytes:
        counts = {state: sum(row["state"] == state for row in self.rows) for state in ("done", "failed")}
        return json.dumps({**counts, "photos": self.rows}).encode() + b"\n"
