"""The normalizer that a log's framework uses by default, for logs without advantages."""

USUAL = {
    "trl": "trl-grpo",
    "trl-wandb": "trl-0.15.1-grpo",
    "ms-swift": "trl-grpo",
    "ms-swift-ray": "trl-grpo",
    "verl": "verl-grpo",
    "nemo-rl": "nemo-grpo",
    "skyrl-eval": "skyrl-grpo",
    "prime-rl": "prime-rl-grpo",
    "prime-rl-tokens": "prime-rl-grpo",
    "tinker": "tinker-group",
    "ttt-discover": "discover-entropic-adaptive",
    "slime": "slime-grpo",
    "theta-evolve": "thetaevolve-grpo",
}
