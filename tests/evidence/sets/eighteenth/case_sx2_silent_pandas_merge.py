"""
title: after a left join the 18-digit ids no longer match: they went through float64 and back
expect: silent:promotion|precision-loss|round-trip
thread: https://github.com/pandas-dev/pandas/issues/9958
measured: clicks 1000, found again among the posts 0, mean score per slot
widened: clicks 1000, found again among the posts 1000, mean score per slot 0.513 0.510 0.445 0.512 0.507
innocent: clicks 1000, found again among the posts 0, mean score per slot
suspect: line 29 harmless (a score to seven digits)

Expectation, written first: the left join leaves rows without a click, so pandas turns the id column of the right side into
float64, which steps by 128 at 1e18. Dropping the empty rows and casting back to int64 looks like a repair, but the ids are
no longer those of the posts and most of the next join finds nothing. The float32 scores are harmless.
"""
import numpy as np
import pandas as pd

EPOCH = 1_700_000_000_000


def snowflake(millis, worker, sequence):
    return ((millis - EPOCH + 300_000_000_000) << 22) | (worker << 12) | sequence


def load_posts(rng, count):
    ids = [snowflake(EPOCH + i, 1 + i % 3, 1 + i % 50) for i in range(count)]
    return pd.DataFrame({
        "post_id": np.array(ids, dtype="int64"),
        "author": rng.integers(0, 50, count),
        "score": rng.random(count).astype("float32"),
    })


def load_impressions(count):
    return pd.DataFrame({"impression": np.arange(count), "slot": np.arange(count) % 5})


def load_clicks(posts, rng, impressions):
    clicked = np.sort(rng.choice(len(impressions), len(posts), replace=False))
    return pd.DataFrame({"impression": clicked, "post_id": posts["post_id"].to_numpy()})


def attach_clicks(impressions, clicks):
    joined = impressions.merge(clicks, on="impression", how="left")  # BORN
    joined["clicked"] = joined["post_id"].notna()
    return joined


def clicked_posts(joined, posts):
    with_click = joined[joined["clicked"]].copy()
    with_click["post_id"] = with_click["post_id"].astype("int64")
    return with_click.merge(posts, on="post_id", how="inner")


def score_per_slot(result):
    means = result.groupby("slot")["score"].mean()
    return " ".join(f"{value:.3f}" for value in means)


def main():
    rng = np.random.default_rng(0)
    posts = load_posts(rng, 1000)
    impressions = load_impressions(3000)
    clicks = load_clicks(posts, rng, impressions)
    joined = attach_clicks(impressions, clicks)
    result = clicked_posts(joined, posts)
    print(f"clicks {int(joined['clicked'].sum())}, found again among the posts {len(result)}, mean score per slot {score_per_slot(result)}")


main()
