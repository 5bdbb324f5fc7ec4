"""The training command as people use it: separate processes, killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.conftest import ROOT
from training.checkpoint import CheckpointError, load_weights

TRAIN = str(ROOT / "training" / "train.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(tiny: Path, faces: Path, out: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        TRAIN,
        "--config",
        str(tiny),
        "--data",
        str(faces),
        "--out",
        str(out),
        "--log-steps",
        "5",
        *more,
    ]


def train(tiny: Path, faces: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    # From another working directory, as users do.
    return subprocess.run(
        command(tiny, faces, out, *more), cwd=out.parent, env=ENVIRONMENT, capture_output=True, text=True
    )


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def same(a: Path, b: Path) -> bool:
    left, right = load_file(a), load_file(b)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture(scope="module")
def straight(tiny: Path, faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps without a break."""
    out = tmp_path_factory.mktemp("straight") / "run"
    done = train(tiny, faces, out, "--steps", "20")
    assert done.returncode == 0, done.stderr
    return out


def test_a_run_writes_weights_numbers_and_a_sheet(straight: Path) -> None:
    assert {p.name for p in straight.iterdir()} == {
        "last.safetensors", "last.json", "best.safetensors", "best.json", "last.state.safetensors", "metrics.jsonl", "sheets", ".lock",
    }  # fmt: skip
    logged = [line for line in lines(straight) if "total" in line]
    assert [line["step"] for line in logged] == [5, 10, 15, 20]
    assert {"kl", "hole_l1", "wins", "images_per_s", "back_max", "frequency", "elbo"} <= logged[0].keys()
    valid = lines(straight)[-1]["valid"]
    assert {"rebuilt_l1", "best_of_six_l1", "pair_l1", "wins", "dead", "ambiguity"} <= valid.keys()
    assert [p.name for p in (straight / "sheets").iterdir()] == ["00000160.png"]
    model, config, note = load_weights(straight / "last.safetensors")
    assert config.name == "tiny32"
    assert note["progress"]["images"] == 160
    assert model.config.image_size == 32


def test_killed_and_resumed_is_bit_equal(straight: Path, tiny: Path, faces: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(tiny, faces, out, "--steps", "10").returncode == 0
    running = subprocess.Popen(command(tiny, faces, out, "--resume"), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while lines(out)[-1].get("step", 0) <= 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    running.kill()  # some steps further, nothing saved since step 10
    running.wait()
    done = train(tiny, faces, out, "--steps", "20", "--resume")
    assert done.returncode == 0, done.stderr
    assert same(out / "last.state.safetensors", straight / "last.state.safetensors")
    assert same(out / "last.safetensors", straight / "last.safetensors")
    losses = [[line["total"] for line in lines(run) if "total" in line] for run in (out, straight)]
    assert losses[0] == losses[1]


def test_interrupt_saves_and_leaves(tiny: Path, faces: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    running = subprocess.Popen(
        command(tiny, faces, out, "--minutes", "5"), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (out / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 0, running.stderr.read()
    running.stderr.close()
    assert load_weights(out / "last.safetensors")[2]["progress"]["images"] > 0


def test_sizes_grow_by_phase(faces: Path, tmp_path: Path) -> None:
    text = (
        (ROOT / "training/configs/tiny32.toml")
        .read_text()
        .replace("[[phases]]", "[[phases]]\nsize = 16\nimages = 24\nbatch = 8\n[[phases]]")
    )
    config = tmp_path / "growing.toml"
    config.write_text(text)
    out = tmp_path / "run"
    assert train(config, faces, out, "--steps", "2").returncode == 0
    assert load_weights(out / "last.safetensors")[0].config.image_size == 16
    done = train(config, faces, out, "--steps", "5", "--resume")
    assert done.returncode == 0, done.stderr
    assert "pictures of 32 from now on" in done.stderr
    assert load_weights(out / "last.safetensors")[0].config.image_size == 32


def test_phases_of_one_size_may_differ_in_their_rate(faces: Path, tmp_path: Path) -> None:
    """The second phase has a rate of almost nothing, and so nothing changes in it."""
    config = tmp_path / "slow.toml"
    base = json.dumps(str(ROOT / "training/configs/tiny32.toml"))
    phases = [f"[[phases]]\nsize = 32\nimages = 16\nbatch = 8\nlearning_rate = {rate}\n" for rate in (1e-3, 1e-30)]
    config.write_text(f"base = {base}\nema = 0.0\n{''.join(phases)}[losses]\nadversarial = 0.0\nfeatures = 0.0\n")
    for steps in (1, 2, 4):
        assert train(config, faces, tmp_path / str(steps), "--steps", str(steps), "--log-steps", "1").returncode == 0
    one, two, four = (tmp_path / str(steps) / "last.safetensors" for steps in (1, 2, 4))
    assert not same(one, two)
    assert same(two, four)
    assert {line["discriminator"] for line in lines(tmp_path / "4") if "discriminator" in line} == {0.0}, (
        "no loss asks for it"
    )


def test_a_backbone_in_half_precision_resumes_bit_equally(faces: Path, tmp_path: Path) -> None:
    config = tmp_path / "judged.toml"
    base = ROOT / "training/configs/tiny32.toml"
    config.write_text(base.read_text().replace("clip = 10.0", 'clip = 10.0\njudge = "backbone"\nbfloat16 = true'))
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for out, steps in ((straight, "4"), (broken, "2"), (broken, "4")):
        done = train(config, faces, out, "--steps", steps, "--resume")
        assert done.returncode == 0, done.stderr
    assert same(broken / "last.state.safetensors", straight / "last.state.safetensors")
    saved = load_file(straight / "last.state.safetensors")
    assert any(name.startswith("judge.heads.whole16") for name in saved)
    assert sum(t.numel() for name, t in saved.items() if name.startswith("judge.")) < 300_000, "not the frozen network"


def test_two_processes_do_what_one_does(straight: Path, tiny: Path, faces: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    base = command(tiny, faces, out, "--steps", "10")[1:]
    both = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *base]
    done = subprocess.run(both, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mine = [line for line in lines(out) if "total" in line]
    alone = [line for line in lines(straight) if "total" in line]
    assert len(mine) == 2, "only one process writes"
    for two, one in zip(mine, alone, strict=False):
        for name in ("total", "back_max", "discriminator", "reconstruction"):
            assert two[name] == pytest.approx(one[name], rel=5e-3), name


def test_a_loss_that_is_not_finite_stops_with_the_facts(tiny: Path, faces: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(tiny, faces, out, "--steps", "2").returncode == 0
    state = load_file(out / "last.state.safetensors")
    from safetensors import safe_open

    with safe_open(out / "last.state.safetensors", "pt") as file:
        metadata = file.metadata()
    state["model.encoder.stems.8.bias"].fill_(float("nan"))
    save_file(state, out / "last.state.safetensors", metadata)
    done = train(tiny, faces, out, "--steps", "4", "--resume")
    assert done.returncode == 1
    assert "not finite at step 3" in done.stderr
    assert "face_000" in done.stderr
    assert "last.safetensors" in done.stderr


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--data", "nowhere"], "expected a folder of pictures"),
        (["--preset", "ffh"], "expected one of"),
        (["--config", "none.toml"], "none.toml"),
    ],
)
def test_mistakes_get_one_clear_line_and_exit_code_2(
    tiny: Path, faces: Path, tmp_path: Path, more: list[str], says: str
) -> None:
    done = train(tiny, faces, tmp_path / "run", "--steps", "1", *more)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_is_never_overwritten(straight: Path, tiny: Path, faces: Path) -> None:
    before = (straight / "last.safetensors").read_bytes()
    done = train(tiny, faces, straight, "--steps", "1")
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert (straight / "last.safetensors").read_bytes() == before


def test_two_runs_in_one_folder_are_refused(straight: Path, tiny: Path, faces: Path) -> None:
    import fcntl

    with open(straight / ".lock", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = train(tiny, faces, straight, "--steps", "30", "--resume")
    assert done.returncode == 2
    assert "in use" in done.stderr


def test_a_new_run_may_start_from_other_weights(straight: Path, tiny: Path, faces: Path, tmp_path: Path) -> None:
    done = train(tiny, faces, tmp_path / "run", "--steps", "1", "--init", str(straight / "last.safetensors"))
    assert done.returncode == 0, done.stderr
    before, after = (load_file(run / "last.safetensors") for run in (straight, tmp_path / "run"))
    rescaled = "context_head.out", "mixture_head.trunk", "context_to_skip", "visible_decoder.0"  # `standardise_code`
    same = [name for name in before if not name.startswith(rescaled)]
    change = max(float((after[name] - before[name]).abs().max()) for name in same)
    assert 0 < change < 0.01, "one step away"


def test_what_does_not_fit_starts_anew(straight: Path, tiny: Path, faces: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(tiny.read_text().replace("latent = 16", "latent = 8"))
    init = "--init", str(straight / "last.safetensors")
    done = train(other, faces, tmp_path / "run", "--steps", "1", *init)
    assert done.returncode == 0, done.stderr
    assert "tensors start anew" in done.stderr
    before, after = (load_file(run / "last.safetensors") for run in (straight, tmp_path / "run"))
    assert after["decoder.place.weight"].shape != before["decoder.place.weight"].shape
    stem = next(name for name in before if name.startswith("encoder.stems."))
    assert float((after[stem] - before[stem]).abs().max()) < 0.01, "what fits is taken"


def test_resuming_with_another_network_is_refused(straight: Path, tiny: Path, faces: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(tiny.read_text().replace("latent = 16", "latent = 8"))
    done = train(other, faces, straight, "--steps", "30", "--resume")
    assert done.returncode == 2
    assert "another network" in done.stderr


def test_weights_that_are_not_a_checkpoint_are_refused(straight: Path, tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"a": torch.zeros(1)}, tmp_path / "plain.safetensors")
    for name in ("text", "plain", "missing"):
        with pytest.raises(CheckpointError, match=name):
            load_weights(tmp_path / f"{name}.safetensors")
