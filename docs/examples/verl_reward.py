"""The file that a configuration of verl names, and the command that writes its rows.

python docs/examples/verl_reward.py rows.parquet

reward.reward_manager.source=importlib
reward.reward_manager.module.path=docs/examples/verl_reward.py
reward.reward_manager.name=Reward
reward.num_workers=1
algorithm.adv_estimator=s2s_rank
data.train_files=rows.parquet
"""

import sys

from search_to_signal.integrations.verl import (
    compute_score,
    prompt_rows,
    register_normalizers,
    reward_manager,
)
from search_to_signal.sandbox.settings import EvaluationSettings

SETTINGS = EvaluationSettings(timeout_s=5.0, wall_factor=6.0, memory_mb=256, slots=2)

if __name__ == "__main__":
    import pandas

    pandas.DataFrame(prompt_rows("tsp", 64, split="embedded", settings=SETTINGS)).to_parquet(sys.argv[1])
else:
    Reward = reward_manager("tsp", "factorized", split="embedded", settings=SETTINGS)
    register_normalizers()
    # For reward.custom_reward_function, which sees one completion at a time.
    score = compute_score("tsp", "native", split="embedded", settings=SETTINGS)
