"""One training run: Algorithm 1 over the phases of a configuration, with checkpoints, sheets and numbers on the way."""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from rich.progress import Progress as Bar
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from picme_sdk.files import replacing
from training import checkpoint
from training.backbone import Backbone
from training.checkpoint import CheckpointError, Progress, Trainee
from training.config import TrainConfig
from training.data import Batch, DataError, Pictures, TrainingStream, find_all, find_images, find_preset
from training.discriminator import BackboneJudge, Judge, PyramidJudge
from training.masks import MaskSource, hole_ratios
from training.model import Picme, grow
from training.step import DiscriminatorStep, Draws, GeneratorStep
from training.validate import contact_sheet, evaluate, fixed_batch

log = logging.getLogger("training")
SHEET_ROWS = 8
VALID_PICTURES = 200
STANDARD_PICTURES = 64  # that z_m of a new run is scaled by


class NotFiniteError(RuntimeError):
    """The loss is not a number any more."""


def take_lock(path: Path) -> IO[bytes]:
    """Two runs in one folder would overwrite each other's checkpoints. The lock goes with the process, however it ends."""
    file = open(path, "wb")  # noqa: SIM115 (held as long as the run)
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no such locks on this system
        pass
    except OSError as error:
        file.close()
        raise CheckpointError(
            f"{path.parent} is in use | expected no other run in it | wait for it, or choose another --out"
        ) from error
    return file


class Run:
    """One process of a training run."""

    def __init__(self, config: TrainConfig, options: argparse.Namespace) -> None:
        self.config, self.options = config, options
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
        if self.world > 1:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        if any(phase.batch % self.world for phase in config.phases):
            raise DataError(f"{self.world} processes | expected a divisor of every phase's batch | change one of them")
        self.files = find_preset(options.preset, Path(options.data[0])) if options.preset else find_all(options.data)
        self.valid_files = None
        if options.valid:
            self.valid_files = (
                find_preset(options.preset, options.valid, "valid") if options.preset else find_images(options.valid)
            )
        self.backbone = Backbone(bfloat16=config.bfloat16).to(self.device) if config.judge == "backbone" else None
        self.progress = Progress()
        self.stopping = False
        if self.rank == 0:
            self._lock = take_lock(options.out / ".lock")
        self.size = config.phases[0].size
        state = options.out / "last.state.safetensors"
        if options.resume and state.exists():
            self._restore(state)
        elif state.exists():
            raise CheckpointError(
                f"{options.out} holds a run | expected a new folder | add --resume, or choose another --out"
            )
        else:
            self.trainee = self._trainee(self.size)
            if options.init:
                self._start_from(options.init)
        new = not (options.resume and state.exists())
        self._enter(config.phase_at(self.progress.images)[1].size)
        if new:
            first = self.stream.batch(0, STANDARD_PICTURES).to(self.device)
            for net in (self.trainee.model, self.trainee.average):
                net.standardise_code(first.image * (1 - first.mask), first.mask)

    def _trainee(self, size: int) -> Trainee:
        torch.manual_seed(self.config.seed)
        model = Picme(self.config.model.at(size))
        average = Picme(self.config.model.at(size)).requires_grad_(False).eval()
        average.load_state_dict(model.state_dict())
        judge: Judge = PyramidJudge(size) if self.backbone is None else BackboneJudge(size, self.backbone)
        for net in (model, average, judge):
            net.to(self.device, memory_format=torch.channels_last)
        return Trainee(
            model, average, judge, {"model": self._adam("model", model), "judge": self._adam("judge", judge)}
        )

    def _rate(self, name: str) -> float:
        """The learning rate of now: phases of one size may differ in it."""
        rate = self.config.phase_at(self.progress.images)[1].learning_rate
        return rate * (self.config.judge_rate if name == "judge" else 1)

    def _adam(self, name: str, net: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(net.parameters(), self._rate(name), betas=self.config.betas, fused=True)

    def _restore(self, state: Path) -> None:
        tensors, saved, self.progress = checkpoint.read_state(state)
        if saved.model != self.config.model:
            raise CheckpointError(
                f"{state} is of another network | expected the one of --config | choose another --out"
            )
        if saved != self.config:
            log.warning("the configuration changed since the checkpoint; the new one is used")
        sizes = [phase.size for phase in self.config.phases]
        try:
            finest = max(int(name.split(".")[3]) for name in tensors if name.startswith("model.encoder.stems."))
            self.size = next(s for s in sizes if self.config.model.at(s).grids[0] == finest)
            self.trainee = self._trainee(self.size)
            self.trainee.restore(tensors)
        except (LookupError, ValueError, RuntimeError, StopIteration) as error:
            reason = " ".join(str(error).split())[:160]
            raise CheckpointError(
                f"{state}: {reason} | expected the state of this run | choose another --out"
            ) from error
        for optimizer in self.trainee.optimizers.values():  # the state file has moments, the configuration the rest
            optimizer.param_groups[0]["betas"] = self.config.betas
        self._drop_later_lines()

    def _start_from(self, path: Path) -> None:
        """Begin a new run with the weights of another: to fine-tune, or to go on where only the weights were kept."""
        weights = checkpoint.load_weights(path)[0]
        self.size = min(weights.config.image_size, self.config.phases[0].size)
        self.trainee = self._trainee(self.size)
        mine = self.trainee.model.state_dict()
        fitting = {
            name: tensor
            for name, tensor in weights.state_dict().items()
            if name in mine and mine[name].shape == tensor.shape
        }
        if not fitting:
            raise CheckpointError(
                f"{path} is of another network | expected parts of the one of --config | choose another --init"
            )
        for net in (self.trainee.model, self.trainee.average):
            net.load_state_dict(fitting, strict=False)
        if new := sorted(name for name in mine if name not in fitting):
            log.info("%d of %d tensors start anew, such as %s", len(new), len(mine), new[0])

    def _drop_later_lines(self) -> None:
        """Lines that were logged after the checkpoint belong to steps that will be made again; a kill may have cut the last."""

        def kept(line: str) -> bool:
            try:
                return bool(json.loads(line)["images"] <= self.progress.images)
            except (ValueError, LookupError, TypeError):
                return False

        path = self.options.out / "metrics.jsonl"
        if self.rank == 0 and path.exists():
            lines = [line for line in path.read_text(errors="replace").splitlines() if kept(line)]
            with replacing(path) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines))

    def _enter(self, size: int) -> None:
        """Set up for pictures of `size`, growing the networks if they are smaller."""
        if size < self.size:
            raise CheckpointError(
                f"weights for pictures of {self.size} | expected at most {size}, the phase's size | change [[phases]]"
            )
        if size != self.size:
            old, self.size = self.trainee, size
            self.trainee = self._trainee(size)
            for name in ("model", "average", "judge"):
                grow(getattr(old, name), getattr(self.trainee, name))
            log.info("pictures of %d from now on", size)
        masks = MaskSource(self.config.masks, size, find_images(self.options.masks) if self.options.masks else ())
        pictures = Pictures(self.files, size, larger=self.config.nearest < 1)
        self.stream = TrainingStream(pictures, masks, self.config.seed, self.config.nearest, self.config.recolour)
        shown = Pictures(self.valid_files or self.files, size)
        self.shown = [
            batch.to(self.device)
            for batch in fixed_batch(shown, masks, VALID_PICTURES if self.valid_files else SHEET_ROWS)
        ]
        self.wins = torch.zeros(self.config.model.primitives, dtype=torch.long)
        generator: nn.Module = GeneratorStep(self.trainee.model, self.config.losses, self.config.bfloat16)
        discriminator: nn.Module = DiscriminatorStep(self.trainee.judge, self.config.losses.slope)
        if self.world > 1:
            generator, discriminator = DistributedDataParallel(generator), DistributedDataParallel(discriminator)
        self.generator_step, self.discriminator_step = generator, discriminator
        ratios = hole_ratios(masks)
        log.info("%d pictures at %d, holes %.0f %% of a picture (%.0f to %.0f)", len(self.files), size,
                 100 * ratios.mean(), 100 * ratios.min(), 100 * ratios.max())  # fmt: skip

    def step(self, batch: Batch) -> dict[str, float]:
        """Algorithm 1 on this process's part of the batch; returns the named losses, averaged over processes."""
        phase = self.config.phase_at(self.progress.images)[1]
        mine = slice(self.rank * phase.batch // self.world, (self.rank + 1) * phase.batch // self.world)
        model = self.config.model
        draws = Draws.of(self.config.seed, self.progress.images, phase.batch, model.context, model.latent).part(mine)
        batch, trainee = batch.to(self.device), self.trainee
        trainee.judge.requires_grad_(False)
        result = self.generator_step(
            batch.image, batch.mask, draws.to(self.device), trainee.judge, self.progress.images
        )
        self._update("model", result.total, batch)
        judged = torch.zeros(())
        if result.seen:
            trainee.judge.requires_grad_(True)
            judged = self.discriminator_step(result.seen, batch.mask, self.progress.step)
            self._update("judge", judged, batch)
        with torch.no_grad():  # a young average must not be mostly the random start
            decay = min(self.config.ema, (1 + self.progress.step) / (10 + self.progress.step))
            torch._foreach_lerp_(list(trainee.average.parameters()), list(trainee.model.parameters()), 1 - decay)
        self.wins += torch.bincount(result.best.cpu(), minlength=len(self.wins))
        self.progress = replace(self.progress, images=self.progress.images + phase.batch, step=self.progress.step + 1)
        parts = {"total": result.total.detach(), "discriminator": judged.detach().to(self.device), **result.parts}
        values = torch.stack([value.float() for value in parts.values()])
        if self.world > 1:
            dist.all_reduce(values)
        return dict(zip(parts, (values / self.world).tolist(), strict=True))

    def _update(self, name: str, loss: torch.Tensor, batch: Batch) -> None:
        finite = torch.isfinite(loss.detach()).float()
        if self.world > 1:
            dist.all_reduce(finite, dist.ReduceOp.MIN)
        if not finite:
            files = ", ".join(map(str, batch.files))
            last = self.options.out / "last.safetensors"
            raise NotFiniteError(
                f"the {name}'s loss is not finite at step {self.progress.step + 1} (pictures: {files})"
                f" | last good checkpoint: {last if last.exists() else 'none yet'} | lower the learning rate and --resume"
            )
        optimizer = self.trainee.optimizers[name]
        optimizer.param_groups[0]["lr"] = self._rate(name)
        optimizer.zero_grad()
        loss.backward()
        if self.config.clip:
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], self.config.clip)
        optimizer.step()

    def record(self, parts: dict[str, float], speed: float) -> None:
        """One line of metrics.jsonl; wins are counted since the line before."""
        wins = self.wins
        if self.world > 1:
            dist.all_reduce(wins)
        if self.rank == 0:
            line: dict[str, Any] = {"images": self.progress.images, "step": self.progress.step, "size": self.size}
            line |= {name: round(value, 6) for name, value in parts.items()}
            line |= {"wins": wins.tolist(), "images_per_s": round(speed, 2)}
            with open(self.options.out / "metrics.jsonl", "a") as file:
                file.write(json.dumps(line) + "\n")
        self.wins = torch.zeros_like(wins)

    def save(self) -> None:
        """Checkpoint, contact sheet and held-out numbers; rank 0 only."""
        if self.rank:
            return
        out, average = self.options.out, self.trainee.average
        numbers = evaluate(average, self.shown)
        better = self.progress.best is None or numbers["best_of_six_l1"] < self.progress.best
        if better:
            self.progress = replace(self.progress, best=numbers["best_of_six_l1"])
            checkpoint.save_weights(out / "best.safetensors", average, self.config, self.size, self.progress, numbers)
        checkpoint.save_weights(out / "last.safetensors", average, self.config, self.size, self.progress, numbers)
        checkpoint.save_state(out / "last.state.safetensors", self.trainee, self.config, self.progress)
        first = self.shown[0]
        rows = Batch(first.image[:SHEET_ROWS], first.mask[:SHEET_ROWS], first.files[:SHEET_ROWS])
        (out / "sheets").mkdir(exist_ok=True)
        contact_sheet(average, rows, out / "sheets" / f"{self.progress.images:08d}.png")
        with open(out / "metrics.jsonl", "a") as file:
            file.write(json.dumps({"images": self.progress.images, "size": self.size, "valid": numbers}) + "\n")
        log.info("%d images: %s", self.progress.images, " ".join(f"{k} {v}" for k, v in numbers.items()))
        if numbers["dead"]:
            log.warning("primitives that never win: %s", numbers["dead"])

    def _fetch(self, images: int) -> Batch:
        batch = self.config.phase_at(images)[1].batch // self.world
        return self.stream.batch(images + self.rank * batch, batch)

    def _agree(self, wish: bool) -> bool:
        """Processes must stop and save at the same step: whoever wishes it, all do it."""
        if self.world == 1:
            return wish
        flag = torch.tensor(float(wish), device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def train(self, bar: Bar) -> None:
        options = self.options
        begin = saved = logged = time.monotonic()
        logged_images, before = self.progress.images, self.progress.seconds
        task = bar.add_task("", total=options.minutes * 60 if options.minutes else options.steps, note="")
        with ThreadPoolExecutor(1) as loader:
            ahead: Future[Batch] = loader.submit(self._fetch, self.progress.images)
            while options.steps is None or self.progress.step < options.steps:
                size = self.config.phase_at(self.progress.images)[1].size
                if size != self.size:
                    ahead.result()
                    self.save()
                    self._enter(size)
                    ahead = loader.submit(self._fetch, self.progress.images)
                batch = ahead.result()
                ahead = loader.submit(self._fetch, self.progress.images + len(batch.files) * self.world)
                parts = self.step(batch)
                now = time.monotonic()
                self.progress = replace(self.progress, seconds=before + now - begin)
                if self.progress.step % options.log_steps == 0:
                    speed = (self.progress.images - logged_images) / (now - logged)
                    self.record(parts, speed)
                    logged, logged_images = now, self.progress.images
                    note = f"{self.progress.images:,} images at {self.size}, {speed:.1f}/s, total {parts['total']:.3f}"
                    bar.update(task, description=note)
                bar.update(task, completed=now - begin if options.minutes else self.progress.step)
                over = options.minutes is not None and now - begin >= options.minutes * 60
                if self._agree(self.stopping or over):
                    break
                if self._agree(now - saved >= options.save_minutes * 60):
                    self.save()
                    saved = logged = time.monotonic()
                    logged_images = self.progress.images
        self.save()
