"""The words of the page, for a reader who meets them for the first time."""

from collections.abc import Mapping

GLOSSARY: Mapping[str, str] = {
    "group": "The completions sampled for one prompt, which are compared with each other.",
    "advantage": "What the trainer makes of a reward by comparing it with its group; it weighs the gradient.",
    "dead group": "A group that teaches nothing: its rewards tie, its advantages are equal or NaN, or it is "
    "left out of the loss.",
    "all right, all wrong": "A group that ties at the highest, or lowest, reward at which any does, above or "
    "below what groups get whose rewards differ.",
    "teach": "A completion teaches where it enters the loss with an advantage other than 0.",
    "tight group, gain": "Advantage range over reward range. Where rewards hardly differ, dividing by their "
    "deviation makes a rounding error as large as a lesson.",
    "normalizer": "The formula from rewards of a group to advantages; s2s normalizers lists those of the "
    "frameworks.",
    "explains": "The normalizer gives every logged advantage, to float32 rounding or to the digits logged.",
    "1 - cosine": "Angle between two sets of advantages: 0 is the same direction, 1 unrelated, 2 opposite.",
    "share of variance": "Covariance of a weighted reward with the advantage over the advantage's variance.",
    "severity": "high: concerns half of the generation or update, or more; medium: 15 %; low: less.",
}
