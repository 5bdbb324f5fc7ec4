"""The training loop: Algorithm 1 over the phases of a configuration, with checkpoints, sheets and held-out numbers on the way."""

from __future__ import annotations

import argparse
import logging
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.progress import Progress as Bar
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from picme_sdk.errors import CheckpointError, DataError, NotFiniteError
from training import checkpoint
from training.backbone import Backbone
from training.checkpoint import Progress
from training.config import TrainConfig
from training.data import Batch, Pictures, TrainingStream, find_all, find_images, find_preset
from training.masks import MaskSource, hole_ratios
from training.monitor import contact_sheet, fixed_batches, held_out_numbers
from training.run_folder import RunFolder
from training.step import DiscriminatorStep, Draws, GeneratorResult, GeneratorStep
from training.trainee import Trainee

log = logging.getLogger("training")
SHEET_ROWS = 8
VALID_PICTURES = 200
STANDARD_PICTURES = 64  # over which z_m of a new run is standardised


class Run:
    """One process of a training run. `stopping` may be set from a signal handler: the run then saves and returns."""

    def __init__(self, config: TrainConfig, options: argparse.Namespace) -> None:
        self.config, self.options = config, options
        self.folder = RunFolder(options.out)
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
        if self.world > 1:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        if any(phase.batch % self.world for phase in config.phases):
            raise DataError(f"{self.world} processes", "a divisor of every phase's batch", "change one of them")
        self.files = find_preset(options.preset, Path(options.data[0])) if options.preset else find_all(options.data)
        self.valid_files = None
        if options.valid:
            self.valid_files = (
                find_preset(options.preset, options.valid, "valid") if options.preset else find_images(options.valid)
            )
        frozen = config.discriminator == "backbone"
        self.backbone = Backbone(bfloat16=config.bfloat16).to(self.device) if frozen else None
        self.progress = Progress()
        self.stopping = False
        if self.rank == 0:
            self.folder.lock()
        self.size = config.phases[0].size
        if options.resume and self.folder.state.exists():
            self._restore(self.folder.state)
        elif self.folder.state.exists():
            raise CheckpointError(f"{options.out} holds a run", "a new folder", "add --resume, or choose another --out")
        else:
            self.trainee = self._new_trainee()
            if options.init:
                self._start_from(options.init)
        self._enter(config.phase_at(self.progress.images)[1].size)
        if self.progress.step == 0:
            first = self.stream.batch(0, STANDARD_PICTURES).to(self.device)
            for net in (self.trainee.model, self.trainee.average):
                net.standardise_code(first.image * (1 - first.mask), first.mask)

    def _new_trainee(self) -> Trainee:
        return Trainee.new(self.config, self.size, self.backbone, self.device)

    def _restore(self, state: Path) -> None:
        """Resume from the state file."""
        tensors, saved, self.progress = checkpoint.read_state(state)
        if saved.model != self.config.model:
            raise CheckpointError(f"{state} is of another network", "the one of --config", "choose another --out")
        if saved != self.config:
            log.warning("the configuration changed since the checkpoint; the new one is used")
        sizes = [phase.size for phase in self.config.phases]
        try:
            finest = max(int(name.split(".")[3]) for name in tensors if name.startswith("model.encoder.stems."))
            self.size = next(s for s in sizes if self.config.model.at(s).grids[0] == finest)
            self.trainee = self._new_trainee()
            self.trainee.restore(tensors)
        except (LookupError, ValueError, RuntimeError, StopIteration) as error:
            reason = " ".join(str(error).split())[:160]
            raise CheckpointError(f"{state}: {reason}", "the state of this run", "choose another --out") from error
        for optimizer in self.trainee.optimizers.values():  # only the moments come from the state file
            optimizer.param_groups[0]["betas"] = self.config.betas
        if self.rank == 0:
            self.folder.drop_lines_after(self.progress.images)

    def _start_from(self, path: Path) -> None:
        """Start a new run from the weights of another, to fine-tune or to continue where only the weights were kept."""
        weights = checkpoint.load_weights(path)[0]
        self.size = min(weights.config.image_size, self.config.phases[0].size)
        self.trainee = self._new_trainee()
        own, given = self.trainee.model.state_dict(), weights.state_dict()
        fitting = {name: tensor for name, tensor in given.items() if name in own and own[name].shape == tensor.shape}
        if not fitting:
            raise CheckpointError(
                f"{path} is of another network", "parts of the one of --config", "choose another --init"
            )
        for net in (self.trainee.model, self.trainee.average):
            net.load_state_dict(fitting, strict=False)
        if new := sorted(name for name in own if name not in fitting):
            log.info("%d of %d tensors are not in %s and start untrained, such as %s", len(new), len(own), path, new[0])

    def _enter(self, size: int) -> None:
        """Set up for pictures of `size`, growing the networks if they are smaller."""
        if size < self.size:
            raise CheckpointError(
                f"weights for pictures of {self.size}", f"at most {size}, the phase's size", "change [[phases]]"
            )
        if size != self.size:
            smaller, self.size = self.trainee, size
            self.trainee = self._new_trainee()
            self.trainee.grow_from(smaller)
            log.info("pictures of %d from now on", size)
        config = self.config
        masks = MaskSource(config.masks, size, find_images(self.options.masks) if self.options.masks else ())
        pictures = Pictures(self.files, size, larger=config.min_crop < 1)
        self.stream = TrainingStream(pictures, masks, config.seed, config.min_crop, config.photometric_jitter)
        held_out = Pictures(self.valid_files or self.files, size)
        count = VALID_PICTURES if self.valid_files else SHEET_ROWS
        self.held_out = [batch.to(self.device) for batch in fixed_batches(held_out, masks, count)]
        self.wins = torch.zeros(config.model.primitives, dtype=torch.long)
        generator: nn.Module = GeneratorStep(self.trainee.model, config.losses, config.decode_mix, config.bfloat16)
        discriminator: nn.Module = DiscriminatorStep(self.trainee.discriminator, config.losses.gradient_penalty)
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
        draws = Draws.of(self.config.seed, self.progress.images, phase.batch, model.code, model.latent).part(mine)
        batch, trainee = batch.to(self.device), self.trainee
        trainee.discriminator.requires_grad_(False)
        result: GeneratorResult = self.generator_step(
            batch.image, batch.mask, draws.to(self.device), trainee.discriminator, self.progress.images
        )
        self._update("model", result.total, batch)
        discriminator_loss = torch.zeros(())
        if result.inputs:
            trainee.discriminator.requires_grad_(True)
            discriminator_loss = self.discriminator_step(result.inputs, batch.mask, self.progress.step)
            self._update("discriminator", discriminator_loss, batch)
        # Early on the decay is smaller, so that the average does not consist mostly of the random initial weights.
        trainee.update_average(min(self.config.ema, (1 + self.progress.step) / (10 + self.progress.step)))
        self.wins += torch.bincount(result.best.cpu(), minlength=len(self.wins))
        self.progress = replace(self.progress, images=self.progress.images + phase.batch, step=self.progress.step + 1)
        parts = {
            "total": result.total.detach(),
            "discriminator": discriminator_loss.detach().to(self.device),
            **result.parts,
        }
        values = torch.stack([value.float() for value in parts.values()])
        if self.world > 1:
            dist.all_reduce(values)
        return dict(zip(parts, (values / self.world).tolist(), strict=True))

    def _update(self, name: str, loss: torch.Tensor, batch: Batch) -> None:
        """One step of a network's optimizer, with the learning rate of the present phase."""
        finite = torch.isfinite(loss.detach()).float()
        if self.world > 1:
            dist.all_reduce(finite, dist.ReduceOp.MIN)
        if not finite:
            files = ", ".join(map(str, batch.files))
            last = self.folder.last if self.folder.last.exists() else "none yet"
            raise NotFiniteError(
                f"a loss of the {name} that is not finite at step {self.progress.step + 1} (pictures: {files})",
                f"finite losses; the last good checkpoint is {last}",
                "lower the learning rate and --resume",
            )
        rate = self.config.phase_at(self.progress.images)[1].learning_rate
        optimizer = self.trainee.optimizers[name]
        optimizer.param_groups[0]["lr"] = rate * (self.config.discriminator_rate if name == "discriminator" else 1)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.clip:
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], self.config.clip)
        optimizer.step()

    def record(self, parts: dict[str, float], speed: float) -> None:
        """One line of metrics.jsonl; wins are counted since the previous line."""
        wins = self.wins
        if self.world > 1:
            dist.all_reduce(wins)
        if self.rank == 0:
            line: dict[str, Any] = {"images": self.progress.images, "step": self.progress.step, "size": self.size}
            line |= {name: round(value, 6) for name, value in parts.items()}
            self.folder.append(line | {"wins": wins.tolist(), "images_per_s": round(speed, 2)})
        self.wins = torch.zeros_like(wins)

    def save(self) -> None:
        """Checkpoint, contact sheet and held-out numbers; rank 0 only."""
        if self.rank:
            return
        folder, average = self.folder, self.trainee.average
        numbers = held_out_numbers(average, self.held_out)
        score = numbers["best_of_six_l1"]
        if self.progress.best is None or score < self.progress.best:
            self.progress = replace(self.progress, best=score)
            checkpoint.save_weights(folder.best, average, self.config, self.size, self.progress, numbers)
        checkpoint.save_weights(folder.last, average, self.config, self.size, self.progress, numbers)
        checkpoint.save_state(folder.state, self.trainee.state(), self.config, self.progress)
        contact_sheet(average, self.held_out[0].first(SHEET_ROWS), folder.sheet(self.progress.images))
        folder.append({"images": self.progress.images, "size": self.size, "valid": numbers})
        log.info("%d images: %s", self.progress.images, " ".join(f"{k} {v}" for k, v in numbers.items()))
        if numbers["dead"]:
            log.warning("primitives that win less than 1 %% of the time: %s", numbers["dead"])

    def _fetch(self, images: int) -> Batch:
        batch = self.config.phase_at(images)[1].batch // self.world
        return self.stream.batch(images + self.rank * batch, batch)

    def _agree(self, wish: bool) -> bool:
        """Whether any process wishes it: all must stop and save at the same step."""
        if self.world == 1:
            return wish
        flag = torch.tensor(float(wish), device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def train(self, bar: Bar) -> None:
        """Steps until the time or the steps are over, or until `stopping` is set. The next batch is loaded during a step."""
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
