"""
title: matching people of two survey months finds the wrong partners: the household id was read as float32
expect: silent:precision-loss|downcast
thread: https://github.com/bdecon/econ_data/issues/152
measured: households 733 of 4000, matched 33036 of 6000, of them same age 0.182
widened: households 4000 of 4000, matched 6000 of 6000, of them same age 1.000
innocent: households 733 of 4000, matched 33036 of 6000, of them same age 0.182
suspect: line 23 harmless (a survey weight of seven digits)

Expectation, written first: the reader's dtype table gives float32 to the household id, twelve digits of which seven
survive, so neighbouring households share an id and a join on it multiplies the rows and pairs strangers. The float32
weights next to it are fine.
"""
import io

import numpy as np
import pandas as pd

DTYPES = {
    "CPSID": "float32",  # BORN
    "PULINENO": "int8",
    "PRTAGE": "int8",
    "PWSSWGT": "float32",
}


def write_month(rng, households, month):
    rows = []
    for number in households:
        for line in (1, 2):
            age = 18 + (number * 7 + line * 13) % 60
            rows.append((201_801_000_000 + number * 3000, line, age, 1500 + rng.random() * 900))
    frame = pd.DataFrame(rows, columns=list(DTYPES))
    return frame.to_csv(index=False)


def cps_reader(text):
    return pd.read_csv(io.StringIO(text), dtype=DTYPES)


def match_months(first, second):
    keys = ["CPSID", "PULINENO"]
    return first.merge(second, on=keys, suffixes=("_1", "_2"))


def summary(first, second):
    matched = match_months(first, second)
    same_age = (matched["PRTAGE_1"] == matched["PRTAGE_2"]).mean()
    change = np.average(matched["PRTAGE_2"] - matched["PRTAGE_1"], weights=matched["PWSSWGT_1"])
    return {
        "households": first["CPSID"].nunique(),
        "people": len(first),
        "matched": len(matched),
        "same_age": same_age,
        "mean_age_change": abs(change),
    }


def main():
    rng = np.random.default_rng(0)
    january = cps_reader(write_month(rng, range(0, 4000), 1))
    february = cps_reader(write_month(rng, range(1000, 5000), 2))
    s = summary(january, february)
    print(f"households {s['households']} of 4000, matched {s['matched']} of 6000, of them same age {s['same_age']:.3f}")


main()
