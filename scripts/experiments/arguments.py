"""What the experiments share: options, settings of devices and data, tables in Markdown, statistics."""

import argparse
import math
import statistics

ONLY_AT_THE_END = 1_000_000_000  # of train.eval_every_steps
# Student's t, two-sided 95 %, of 1, 2, ... degrees of freedom
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
       2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def not_negative(text):
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def share(text):
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


def add_numbers(parser, **meanings):
    """Adds --NAME N for each; the scale gives the defaults."""
    for name, meaning in meanings.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=positive, metavar="N", help=meaning)


def device_sets(options):
    # A CPU device counts as one core.
    return {"device.list": options.device} | ({"device.threads": 1} if options.device == "cpu" else {})


def data_sets(options):
    if not options.data:
        return {"data.name": "shapes", "data.path": ""}
    folder = options.data.resolve()
    if (folder / "train").is_dir():
        return {"data.name": "image_folder", "data.path": folder}
    is_fashion = any(folder.glob("train-images-idx3-ubyte*"))
    return {"data.name": "fashion_mnist" if is_fashion else "cifar10", "data.path": folder}


def folder_views(image_size):
    """The random crops of the published recipes, for folders of pictures."""
    return {"data.crop_area": 0.08, "data.crop_padding": 0, "data.resize": image_size * 8 // 7}


def data_title(options):
    return {"shapes": "shapes", "cifar10": "CIFAR-10", "fashion_mnist": "Fashion-MNIST", "image_folder": "an image folder"}[data_sets(options)["data.name"]]


def turned(arms, seed):
    """Rotates the order of the arms by seed, so that no arm always runs at the same time."""
    first = (seed - 1) % len(arms)
    return arms[first:] + arms[:first]


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def plus_minus(value, other, digits=2, sign=""):
    """A value with its deviation, if known; empty without a value."""
    if value is None:
        return ""
    return f"{value:{sign}.{digits}f}" + (f" ± {other:.{digits}f}" if other is not None else "")


def mean_and_deviation(values):
    """The mean and the sample deviation; None if there are too few values."""
    if not values:
        return None, None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


INCONCLUSIVE = "≈"  # behind a factor or a difference that these runs do not show
INCONCLUSIVE_NOTE = f"{INCONCLUSIVE} marks a difference that these runs do not show: the two ranges overlap, or the range of the paired values includes \"no change\"."


def several(number, what):
    return f"{number} {what}s" if number != 1 else f"1 {what}"


def count_with_spread(number, what):
    """The number of rounds or seeds; for one, states that the spread is unknown."""
    return several(number, what) if number != 1 else f"one {what} (n = 1: nothing is known of the spread)"


def inconclusive_mark(is_open):
    return f" {INCONCLUSIVE}" if is_open else ""


def ranges_overlap(ours, others):
    """Whether the values of two arms overlap; False if either has only one value."""
    return min(len(ours), len(others)) > 1 and min(ours) <= max(others) and min(others) <= max(ours)


def range_holds(values, value):
    """Whether the values of pairs contain the value of no difference; False for one value."""
    return len(values) > 1 and min(values) <= value <= max(values)


def interval_contains_zero(difference, half_width):
    """Whether the interval of mean_and_half_width() contains 0; False without an interval."""
    return half_width is not None and abs(difference) <= half_width


def add_speed_up(summary, rows, name):
    """The speed of each way over that of the first, and whether their ranges overlap. name: column of the time."""
    times = {one["way"]: [row[name] for row in rows if row["way"] == one["way"]] for one in summary}
    for one in summary:
        one["speed_up"] = summary[0][name] / one[name]
        one["overlaps"] = one is not summary[0] and ranges_overlap(times[one["way"]], times[summary[0]["way"]])


def add_range(row, name, values):
    """Adds the least and the greatest value."""
    row[f"{name}_min"], row[f"{name}_max"] = min(values), max(values)


def digits_of(value):
    """Decimals for three significant digits."""
    return max(1, 2 - math.floor(math.log10(abs(value)))) if value else 1


def ranged(row, name, digits=None):
    value, low, high = (row[key] for key in (name, f"{name}_min", f"{name}_max"))
    digits = digits_of(value) if digits is None else digits
    return f"{value:.{digits}f}" + (f" ({low:.{digits}f} to {high:.{digits}f})" if low < high else "")


def points(rows, x, name, factor=1):
    """A series of plots.py with error bars."""
    return [[row[x] for row in rows], *([row[key] * factor for row in rows] for key in (name, f"{name}_min", f"{name}_max"))]


def note(number, what, centre):
    return f"{centre} of {number} {what}s; error bars: least and greatest" if number > 1 else f"one {what} (n = 1): no error bars"


def note_of_lines(number, what):
    return f"a line for each of {number} {what}s" if number > 1 else f"one {what} (n = 1)"


def median_or_none(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def t95(degrees):
    """Student's t, two-sided 95 %; beyond the table its last value, which is slightly larger."""
    return T95[min(degrees, len(T95)) - 1]


def mean_and_half_width(values):
    """The mean and half of its 95 % interval by Student's t; None for fewer than two values."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, t95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
