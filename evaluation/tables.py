"""Results as Markdown, followed by the numbers that the paper reports for other data."""

from __future__ import annotations

from typing import Any

# Key, title, digits. An arrow says which direction is better.
COLUMNS = (
    ("psnr", "PSNR ↑", 2), ("psnr_best", "PSNR best ↑", 2), ("psnr_of_mean", "PSNR of mean ↑", 2),
    ("ssim", "SSIM ↑", 3), ("ssim_best", "SSIM best ↑", 3), ("ssim_of_mean", "SSIM of mean ↑", 3),
    ("mae", "MAE ↓", 4), ("mae_best", "MAE best ↓", 4), ("mae_of_mean", "MAE of mean ↓", 4),
    ("lpips", "LPIPS ↓", 4), ("lpips_best", "LPIPS best ↓", 4),
    ("diversity", "LPIPS diversity ↑", 4), ("diversity_hole", "in the hole ↑", 4),
    ("fid", "FID ↓", 2), ("div_fid", "DIV-FID, our interpretation ↑", 2),
    ("frechet_alexnet", "Frechet, AlexNet (not FID) ↓", 1), ("div_frechet_alexnet", "between results, AlexNet ↑", 1),
)  # fmt: skip

# From the paper's tables: PSNR, SSIM, MAE, FID of one sampled result, 256x256. c = centre mask, r = random mask.
PAPER_QUALITY = {
    "FFHQ c": {"DFv2": (25.868, 0.922, 0.0231, 16.278), "EC": (26.901, 0.938, 0.0209, 14.276), "MED": (26.325, 0.922, 0.0230, 14.791), "PIC": (26.781, 0.933, 0.0215, 14.513), "ICT": (27.922, 0.948, 0.0208, 10.995), "PICME": (27.551, 0.937, 0.0203, 10.604)},
    "FFHQ r": {"DFv2": (24.962, 0.882, 0.0310, 19.506), "EC": (25.908, 0.882, 0.0301, 17.039), "MED": (25.118, 0.867, 0.0349, 19.644), "PIC": (25.580, 0.889, 0.0303, 17.364), "ICT": (26.681, 0.910, 0.0292, 14.529), "PICME": (25.950, 0.912, 0.0289, 17.014)},
    "Places2 c": {"DFv2": (26.533, 0.881, 0.0215, 24.763), "EC": (26.520, 0.880, 0.0220, 25.642), "MED": (26.469, 0.877, 0.0224, 26.977), "PIC": (26.099, 0.865, 0.0236, 26.393), "ICT": (26.503, 0.880, 0.0244, 21.598), "PICME": (26.554, 0.886, 0.0208, 24.373)},
    "Places2 r": {"DFv2": (25.692, 0.834, 0.0280, 29.981), "EC": (25.510, 0.831, 0.0293, 30.130), "MED": (25.632, 0.827, 0.0291, 31.395), "PIC": (25.035, 0.806, 0.0315, 33.472), "ICT": (25.788, 0.832, 0.0267, 25.420), "PICME": (25.310, 0.829, 0.0236, 25.025)},
    "ImageNet c": {"PIC": (24.010, 0.867, 0.0319, 47.750), "ICT": (24.757, 0.888, 0.0263, 28.818), "PICME": (24.932, 0.897, 0.0260, 23.718)},
    "ImageNet r": {"PIC": (22.711, 0.791, 0.0462, 59.428), "ICT": (23.775, 0.835, 0.0358, 35.842), "PICME": (23.322, 0.846, 0.0415, 39.742)},
}  # fmt: skip
# Centre mask, five results: LPIPS between results, DIV-FID (which the paper does not define).
PAPER_DIVERSITY = {
    "FFHQ c": {"PIC": (0.029, 9.130), "ICT": (0.065, 13.909), "PICME": (0.071, 17.361)},
    "Places2 c": {"PIC": (0.047, 17.742), "ICT": (0.089, 25.253), "PICME": (0.092, 27.194)},
}
PAPER_NOTE = "For orientation only: other data sets, 256x256, other networks and training. These numbers can't be compared with the ones above."
PAPER = {
    "note": PAPER_NOTE,
    "psnr_ssim_mae_fid": PAPER_QUALITY,
    "lpips_diversity_and_div_fid_of_five_results": PAPER_DIVERSITY,
}


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shown(estimate: dict[str, float | None] | None, digits: int) -> str:
    """`value (low to high)`, or a dash where there is no such number."""
    if estimate is None:
        return "-"
    text = f"{estimate['value']:.{digits}f}"
    if estimate["low"] is None:
        return text
    return f"{text} ({estimate['low']:.{digits}f} to {estimate['high']:.{digits}f})"


def markdown(report: dict[str, Any]) -> str:
    """The whole report; measures are rows and methods columns, since there are more measures."""
    setting = report["setting"]
    parts = [
        "# Evaluation\n",
        f"{setting['pictures']} pictures of `{setting['data']}` at {setting['size']}x{setting['size']}, up to {setting['samples']} results"
        f" each, seed {setting['seed']}. In brackets: 95 % interval, bootstrap over pictures. docs/train/evaluation.md defines every row.\n",
        *(f"{note}\n" for note in report["notes"]),
    ]
    for kind, methods in report["masks"].items():
        names = list(methods)
        rows = [["results per picture", *(f"{methods[name]['results']:g}" for name in names)]]
        rows += [
            [title, *(shown(methods[name]["numbers"].get(key), digits) for name in names)]
            for key, title, digits in COLUMNS
            if any(methods[name]["numbers"].get(key) for name in names)
        ]
        rows.append(["ms per picture", *(f"{methods[name]['ms']:.0f}" for name in names)])
        parts += [f"## {kind} mask\n", table(["", *names], rows)]
    return "\n".join([*parts, paper_markdown()])


def paper_markdown() -> str:
    quality = [
        [setting, name, f"{p:.3f}", f"{s:.3f}", f"{m:.4f}", f"{f:.3f}"]
        for setting, methods in PAPER_QUALITY.items()
        for name, (p, s, m, f) in methods.items()
    ]
    diversity = [
        [setting, name, f"{lpips:.3f}", f"{div:.3f}"]
        for setting, methods in PAPER_DIVERSITY.items()
        for name, (lpips, div) in methods.items()
    ]
    return "\n".join([
        "## What the paper reports\n",
        f"**{PAPER_NOTE}** c = centre mask, r = random mask.\n",
        table(["data", "method", "PSNR ↑", "SSIM ↑", "MAE ↓", "FID ↓"], quality),
        "Five results each, centre mask; DIV-FID as the paper prints it, without a definition:\n",
        table(["data", "method", "LPIPS diversity ↑", "DIV-FID ↑"], diversity),
    ])  # fmt: skip
