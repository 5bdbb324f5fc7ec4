"""Many photos on many workers, on Ray Data: names go out, each worker reads, completes and writes, rows of a report come back.

The files themselves show what is finished, so an interrupted job is simply started again: photos whose results exist, and photos that were set
aside in OUT/failed, are not touched. The report is derived from the same facts, so it is the same whether the job ran once or was started three
times. Ray gives a dead worker's photos to another one; a photo that kills its workers again and again is set aside, too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picme_sdk.batch import WORKERS, Sampling, is_photo, mask_names, no_mask, result_path
from picme_sdk.cluster.connection import Workers, imported
from picme_sdk.cluster.places import Place
from picme_sdk.completer import CompleterOptions
from picme_sdk.errors import BadArgument, describe
from picme_sdk.io import replacing
from picme_sdk.mixture import token as tokens
from picme_sdk.mixture.recipe import Draw
from picme_sdk.pixels.mask import MaskLike
from picme_sdk.pixels.photo import load
from picme_sdk.pixels.png import png_bytes, read_token

BLOCK = 16  # photos of one task: what a dead worker's successor looks at again
# Workers that may die at one photo, not counting the death that made the block be worked on one by one; then the photo is set aside.
MAX_DEATHS = 2
FAILED = "failed"  # folder, inside the output, of photos that were set aside

# photo, state ("done" or "failed"), error, results, fresh (done by this job, not by an earlier one)
Row = dict[str, Any]


@dataclass(frozen=True)
class BulkJob:
    """Which photos get what, from which model. The bundle must be at the same path on every machine."""

    photos: Place
    out: Place
    mask: Place | None  # one file for all, a folder with a mask of the same name for each, or None: transparent pixels
    sampling: Sampling
    completer: CompleterOptions

    def targets(self, photo: str) -> list[str]:
        return [result_path(Path(), Path(photo), number + 1).name for number in range(self.sampling.n)]


def photos_of(place: Place) -> list[str]:
    """Names of the pictures in a folder, as `picme batch` finds them."""
    if not place.is_folder():
        raise BadArgument(f"{place}", "a folder of photos", "check the path")
    return [name for name in place.names() if is_photo(name)]


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
    deaths = ray.remote(num_cpus=0)(DeathCounter).remote()
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
    """The Arrow schema of the report's rows."""
    import pyarrow as pa

    result = pa.struct([("file", pa.string()), ("primitive", pa.int32()), ("token", pa.string())])
    fields = [("photo", pa.string()), ("state", pa.string()), ("error", pa.string()), ("results", pa.list_(result))]
    return pa.schema([*fields, ("fresh", pa.bool_())])


class DeathCounter:
    """Counts beginnings without an end: a task that begins twice was running when its worker died. Lives beside the driver."""

    def __init__(self) -> None:
        self._begun: dict[str, int] = {}

    def begin(self, what: str) -> int:
        """How many workers have died at it."""
        self._begun[what] = self._begun.get(what, -1) + 1
        return self._begun[what]

    def end(self, what: str) -> None:
        self._begun.pop(what, None)


class Worker:
    """One model, sized to its share of a machine. Ray Data keeps one in each process of the pool and sends it block after block."""

    def __init__(self, job: BulkJob, deaths: Any) -> None:
        self.job, self.deaths = job, deaths
        self.completer = job.completer.open()
        self.failed = job.out / FAILED
        self.mask = job.mask.read() if job.mask is not None and job.mask.has() else None  # one for all

    def __call__(self, block: Any) -> Any:
        import pyarrow

        names = block.column("photo").to_pylist()
        if self._died(f"block {names[0]}"):  # one by one shows which photo it was
            rows = list(self._carefully(names))
        else:
            with ThreadPoolExecutor(WORKERS) as pool:
                rows = list(pool.map(self.complete, names))
        self._count("end", f"block {names[0]}")
        return pyarrow.Table.from_pylist(rows, schema())

    def _count(self, method: str, what: str) -> Any:
        return imported().get(getattr(self.deaths, method).remote(what))

    def _died(self, what: str) -> int:
        return int(self._count("begin", what))

    def _carefully(self, names: list[str]) -> Iterator[Row]:
        for name in names:
            if self._died(name) < MAX_DEATHS:
                yield self.complete(name)
            else:
                yield self.set_aside(name, f"its worker died {MAX_DEATHS} times at it")
            self._count("end", name)

    def complete(self, name: str) -> Row:
        """One photo: existing results are left alone, and every fault becomes a row."""
        try:
            targets, out = self.job.targets(name), self.job.out
            missing = [target for target in targets if not out.has(target)]
            if missing and self.failed.has(f"{name}.json"):
                error = json.loads(self.failed.read(f"{name}.json"))["error"]
                return {"photo": name, "state": "failed", "error": error, "results": [], "fresh": False}
            if missing:
                self._write(name, targets, missing)
            results = [self._describe(target) for target in targets]
        except Exception as error:  # whatever one file does, the others go on
            return self.set_aside(name, describe(error))
        return {"photo": name, "state": "done", "error": "", "results": results, "fresh": bool(missing)}

    def set_aside(self, name: str, error: str) -> Row:
        self.failed.write(f"{name}.json", json.dumps({"photo": name, "error": error}).encode() + b"\n")
        return {"photo": name, "state": "failed", "error": error, "results": [], "fresh": True}

    def _write(self, name: str, targets: list[str], missing: list[str]) -> None:
        photo = load(self.job.photos.read(name)).pixels
        results = self.job.sampling.of(self.completer.encode(photo, self._mask(name)))
        for target, result in zip(targets, results, strict=True):
            if target in missing:
                self.job.out.write(target, png_bytes(result.image, result.token))

    def _mask(self, name: str) -> MaskLike:
        mask = self.job.mask
        if mask is None or self.mask is not None:
            return self.mask
        for candidate in mask_names(name):
            if mask.has(candidate):
                return mask.read(candidate)
        raise no_mask(name, mask)

    def _describe(self, target: str) -> dict[str, Any]:
        """A result that exists: its token is in the file."""
        with self.job.out.open(target) as stream:
            token = read_token(stream)
        recipe, _ = tokens.decode(token, self.completer.manifest.model_id)
        return {"file": target, "primitive": recipe.primitives[0] if isinstance(recipe, Draw) else None, "token": token}


class ReportFile:
    """Collects rows for a Parquet file, or for JSON as `picme batch` writes it; the file appears when `close` is called."""

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
