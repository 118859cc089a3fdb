"""One group, one opportunity of the learner: an update by GRPO's loss, or several of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from search_to_signal.base.errors import LearnerError, NotFiniteError
from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.base import StepResult, TrainingGroup
from search_to_signal.learner.captured_passes import CapturedPasses, can_capture
from search_to_signal.learner.grpo_loss import TokenGroup, fitting_group, grpo_loss, token_log_probabilities
from search_to_signal.learner.optimizer import build_optimizer, clipped_step, dump_state, load_state
from search_to_signal.learner.settings import GrpoSettings, LearnerSettings

ONE_UPDATE = GrpoSettings()


class GrpoLearner:
    """Owns the adapted model and its optimizer, which a checkpoint may read and set.

    A group whose advantages are all zero is still an opportunity; ``zero_advantage`` decides its use.
    """

    def __init__(
        self, model: Any, settings: LearnerSettings, pad_id: int, rule: GrpoSettings = ONE_UPDATE
    ) -> None:
        self.model = model
        self._settings = settings
        self._rule = rule
        self._pad_id = pad_id
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = build_optimizer(self._parameters, settings)
        # A fresh adapter is in training mode, where a reference would be checkpointed for no gradient.
        model.eval()
        if settings.gradient_checkpointing:
            # Nothing here is random, and a captured pass could not read the state of what is.
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
            # Unsloth checkpoints in the reentrant way all the same, which gives no gradient without this.
            model.enable_input_require_grads()
        self._passes = CapturedPasses(model, settings.logit_temperature) if can_capture(model) else None

    def step(self, group: TrainingGroup) -> StepResult:
        """Update the adapter, as often as the rule says; the result's numbers are the last update's.

        A gradient that is not finite leaves adapter and optimizer as they were before the group.
        Every token is scored: a group that does not fit the model's context is a LearnerError, never cut.
        Completions that were cut at the limit count or are left out as the settings say (D25).
        """
        size = len(group.completion_ids)
        tokens = self.group(group.prompt_ids, group.completion_ids, group.credited)
        _check_credit(group.advantages, size)
        exclude = self._settings.truncated == "exclude"
        kept = [i for i in range(size) if not (exclude and i < len(group.truncated) and group.truncated[i])]
        if not kept or (self._settings.zero_advantage == "skip" and not group.advantages.any()):
            return StepResult(None, None, None, 0, adapter_sha256(self.model))
        if len(kept) < size:
            credited = [group.credited[index] for index in kept] if group.credited else ()
            tokens = self.group(group.prompt_ids, [group.completion_ids[i] for i in kept], credited)
        try:
            parts = tokens, self.reference(tokens), group.advantages[kept], len(kept) / size
            if self._rule.updates == 1:
                return self.update(*parts)
            before, sampled = self.dump(), self._sampled(tokens)
            try:
                for _ in range(self._rule.updates):
                    result = self.update(*parts, sampled)
            except NotFiniteError:
                self.load(before)
                raise
            return result
        except NotFiniteError:
            return StepResult(None, None, None, 0, adapter_sha256(self.model), not_finite=True)

    @torch.no_grad()
    def _sampled(self, group: TokenGroup) -> torch.Tensor:
        """Token log-probabilities of the policy as it is, (G, C)."""
        parts = self._parts(group)
        return torch.cat([token_log_probabilities(self.model, group.rows(part)) for part in parts])

    def group(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[Sequence[int]],
        credited: Sequence[Sequence[bool]] = (),
    ) -> TokenGroup:
        """The tokens as the loss reads them; raises LearnerError for a text that is empty or too long."""
        temperature = self._settings.logit_temperature
        return fitting_group(self.model, prompt_ids, completion_ids, self._pad_id, temperature, credited)

    def dump(self) -> bytes:
        """Everything that steps change, the adapter and the optimizer's moments, as a file's contents."""
        return dump_state(self._state(), self.optimizer)

    def load(self, data: bytes) -> None:
        """Take up what ``dump`` gave; the next step does the same bits as if nothing had been between."""
        load_state(data, self._state(), self.optimizer)

    def _state(self) -> dict[str, torch.Tensor]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def reference(self, group: TokenGroup) -> torch.Tensor:
        """Token log-probabilities of the base model, (G, C): computed with the adapter off, never merged."""
        if self._passes is not None:
            return self._passes.reference(group)
        with self.model.disable_adapter():
            parts = [token_log_probabilities(self.model, group.rows(part)) for part in self._parts(group)]
        return torch.cat(parts)

    def update(
        self,
        group: TokenGroup,
        reference: torch.Tensor,
        advantages: NDArray[np.float64],
        share: float = 1.0,
        sampled: torch.Tensor | None = None,
    ) -> StepResult:
        """One optimizer step with the reference (G, C) given; raises LearnerError as ``step`` does.

        ``share`` of its group is what these completions are: the loss is their mean times that. ``sampled``
        (G, C) is what ratios compare with, the policy itself where it is absent.
        """
        _check_credit(advantages, len(group.completion_ids))
        credit = torch.tensor(advantages, dtype=torch.float32, device=self.model.device)
        # Checkpointing works in training mode alone, which changes nothing else: nothing here has a dropout.
        self.model.train(self._settings.gradient_checkpointing)
        # Loss and KL are means over completions, so the parts' mean is the group's.
        parts, losses, kls = self._parts(group), [], []
        epsilon = math.inf if self._rule.epsilon is None else self._rule.epsilon
        for part in parts:
            rows, passes = group.rows(part), self._passes
            logps = token_log_probabilities(self.model, rows) if passes is None else passes.policy(rows)
            old = None if sampled is None else sampled[part]
            weight, against = self._settings.kl, reference[part]
            loss, kl = grpo_loss(logps, rows, against, credit[part], weight, sampled=old, epsilon=epsilon)
            (share * loss / len(parts)).backward()  # type: ignore[no-untyped-call]
            losses.append(share * float(loss.detach()))
            kls.append(kl)
        self.model.eval()
        norm = clipped_step(self.optimizer, self._parameters, self._settings.max_grad_norm, "group")
        means = sum(losses) / len(parts), sum(kls) / len(parts)
        return StepResult(*means, norm, group.training_tokens, adapter_sha256(self.model))

    def _parts(self, group: TokenGroup) -> list[slice]:
        """What is read at once: the group, or one completion after the other where memory is to be saved."""
        size = len(group.completion_ids)
        rows = 1 if self._settings.gradient_checkpointing and self._passes is None else size
        return [slice(start, start + rows) for start in range(0, size, rows)]


def _check_credit(advantages: NDArray[np.float64], completions: int) -> None:
    if not np.isfinite(advantages).all():
        raise LearnerError(f"advantages {advantages.tolist()} are not finite: check the reward mapping")
    if advantages.shape != (completions,):
        raise LearnerError(
            f"advantages of shape {advantages.shape} for {completions} completions: give one each"
        )
