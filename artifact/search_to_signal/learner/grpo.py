"""One opportunity of the learner: an update by GRPO's loss on one group, or several of each."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from search_to_signal.base.errors import NotFiniteError
from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.base import (
    LearnerDump,
    StepResult,
    TrainingGroup,
    WaitingGroup,
    read_dump,
    waiting_group,
)
from search_to_signal.learner.grpo_loss import (
    CapturedPasses,
    TokenGroup,
    can_capture,
    fitting_group,
    grpo_loss,
    token_log_probabilities,
)
from search_to_signal.learner.optimizer import build_optimizer, clipped_step, dump_state, load_state
from search_to_signal.learner.settings import GrpoSettings, LearnerSettings

PUBLISHED = GrpoSettings()


class PreparedGroup(NamedTuple):
    """A group with what its loss reads: token log-probabilities (G, C) of the base, advantages (G,).

    ``share`` of the step's loss is that of this group. ``sampled`` (G, C) are the log-probabilities that
    ratios compare with, the policy's own where absent.
    """

    tokens: TokenGroup
    reference: torch.Tensor
    advantages: NDArray[np.float64]
    share: float = 1.0
    sampled: torch.Tensor | None = None


class GrpoLearner:
    """Owns the adapted model and its optimizer, which a checkpoint may read and set.

    A group whose advantages are all zero is dropped while the rule's ``redraws`` last; after that it is still
    an opportunity, and ``zero_advantage`` decides its use.
    """

    def __init__(
        self, model: Any, settings: LearnerSettings, pad_id: int, rule: GrpoSettings = PUBLISHED
    ) -> None:
        self.model = model
        self._settings = settings
        self._rule = rule
        self._pad_id = pad_id
        self._waiting: tuple[WaitingGroup, ...] = ()
        self._redrawn = 0  # groups dropped since the last one that was taken
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
        """Take a group; with the last of its step update the adapter, as often as the rule says.

        The result's numbers are the last update's. A gradient that is not finite leaves adapter and optimizer
        as they were before the step.
        Every token is scored: a group that does not fit the model's context is a LearnerError, never cut.
        Completions that were cut at the limit count or are left out as the settings say (D25).
        """
        taken = waiting_group(group)
        self.group(taken.prompt_ids, taken.completion_ids, taken.credited)
        if self._redrawn < self._rule.redraws and not any(taken.advantages):
            self._redrawn += 1
            return StepResult(None, None, None, 0, adapter_sha256(self.model), dropped="no_advantage")
        self._redrawn = 0
        self._waiting = (*self._waiting, taken)
        if len(self._waiting) < self._rule.prompts_per_step:
            return StepResult(None, None, None, 0, adapter_sha256(self.model))
        scored, self._waiting = [*filter(None, map(self._scored, self._waiting))], ()
        if not scored:
            return StepResult(None, None, None, 0, adapter_sha256(self.model))
        try:
            return self._updates(scored)
        except NotFiniteError:
            return StepResult(None, None, None, 0, adapter_sha256(self.model), not_finite=True)

    def _scored(self, group: WaitingGroup) -> PreparedGroup | None:
        """What of a group carries loss, by the settings (D25); None where nothing does."""
        advantages, size = np.array(group.advantages), len(group.completion_ids)
        exclude = self._settings.truncated == "exclude"
        cut = [exclude and index < len(group.truncated) and group.truncated[index] for index in range(size)]
        kept = [index for index in range(size) if not cut[index]]
        if not kept or (self._settings.zero_advantage == "skip" and not advantages.any()):
            return None
        credited = [group.credited[index] for index in kept] if group.credited else ()
        tokens = self.group(group.prompt_ids, [group.completion_ids[index] for index in kept], credited)
        share = len(kept) / size / self._rule.prompts_per_step
        return PreparedGroup(tokens, self.reference(tokens), advantages[kept], share)

    def _updates(self, groups: Sequence[PreparedGroup]) -> StepResult:
        """All updates of one step; raises NotFiniteError, and then nothing has changed."""
        if self._rule.updates == 1:
            return self.update(groups)
        before = dump_state(self._state(), self.optimizer)
        groups = [group._replace(sampled=self._sampled(group.tokens)) for group in groups]
        try:
            for _ in range(self._rule.updates):
                result = self.update(groups)
        except NotFiniteError:
            load_state(before, self._state(), self.optimizer)
            raise
        return result

    @torch.no_grad()
    def _sampled(self, group: TokenGroup) -> torch.Tensor:
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
        """Adapter, optimizer, waiting groups and draws as bytes."""
        state = dump_state(self._state(), self.optimizer)
        return msgspec.msgpack.encode(LearnerDump(state, self._waiting, self._redrawn))

    def load(self, data: bytes) -> None:
        """Take up what ``dump`` gave; the next step does the same bits as if nothing had been between."""
        dump = read_dump(data)
        load_state(dump.state, self._state(), self.optimizer)
        self._waiting, self._redrawn = dump.waiting, dump.redrawn

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

    def update(self, groups: Sequence[PreparedGroup]) -> StepResult:
        """One optimizer step on the sum of the groups' losses; raises LearnerError as ``step`` does."""
        # Checkpointing works in training mode alone, which changes nothing else: nothing here has a dropout.
        self.model.train(self._settings.gradient_checkpointing)
        losses, kls = zip(*map(self._backward, groups), strict=True)
        self.model.eval()
        norm = clipped_step(self.optimizer, self._parameters, self._settings.max_grad_norm, "group")
        count = sum(group.tokens.training_tokens for group in groups)
        return StepResult(sum(losses), sum(kls) / len(kls), norm, count, adapter_sha256(self.model))

    def _parts(self, group: TokenGroup) -> list[slice]:
        """What is read at once: the group, or one completion after the other where memory is to be saved."""
        size = len(group.completion_ids)
        rows = 1 if self._settings.gradient_checkpointing and self._passes is None else size
        return [slice(start, start + rows) for start in range(0, size, rows)]

    def _backward(self, group: PreparedGroup) -> tuple[float, float]:
        """Add up the gradient; loss and KL are means over completions, so the parts' mean is the group's."""
        parts, losses, kls = self._parts(group.tokens), [], []
        credit = torch.tensor(group.advantages, dtype=torch.float32, device=self.model.device)
        epsilon = math.inf if self._rule.epsilon is None else self._rule.epsilon
        for part in parts:
            rows, passes = group.tokens.rows(part), self._passes
            logps = token_log_probabilities(self.model, rows) if passes is None else passes.policy(rows)
            old = None if group.sampled is None else group.sampled[part]
            weight, against = self._settings.kl, group.reference[part]
            loss, kl = grpo_loss(logps, rows, against, credit[part], weight, sampled=old, epsilon=epsilon)
            (group.share * loss / len(parts)).backward()  # type: ignore[no-untyped-call]
            losses.append(group.share * float(loss.detach()))
            kls.append(kl)
        return sum(losses) / len(parts), sum(kls) / len(parts)
