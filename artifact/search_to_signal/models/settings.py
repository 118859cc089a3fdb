"""The knobs of generation: what is sampled, and where; ConfigError for what could never sample."""

import os
from typing import Annotated, Any, Literal

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings

BACKENDS = ("local", "server", "vllm", "unsloth", "api")
LongPrompts = Literal["cut", "refuse"]
Tokens = Annotated[int, Range(1, 10_000_000)]
TemplateKwargs = dict[str, bool | str]

LOOPBACK = "loopback"
# Backends that have a card to themselves.
ENGINES = ("vllm", "unsloth")


class ModelLoading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the weights of a local model lie and in which precision they are computed with.

    LoRA, its optimizer, the output head and every probability are float32 whatever the ``dtype``. ``nf4``
    stores the base in 4 bits through bitsandbytes; a card of NVIDIA is needed for it and for ``bfloat16``'s
    speed.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    quantization: Literal["none", "nf4"] = "none"

    def __post_init__(self) -> None:
        if self.quantization == "nf4" and (self.device, self.dtype) != ("cuda", "bfloat16"):
            raise ConfigError('model.quantization = "nf4" needs model.device = "cuda" and dtype = "bfloat16"')


NF4 = ModelLoading(device="cuda", dtype="bfloat16", quantization="nf4")


class ModelSettings(ModelLoading, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The table ``[model]``: ``name`` is that of an embedded model, or the path of a model directory.

    An engine loads the model by its own settings; with vLLM the others are for the learner's base.
    """

    name: str

    @property
    def loading(self) -> ModelLoading:
        """How the model is loaded, without which it is."""
        return ModelLoading(device=self.device, dtype=self.dtype, quantization=self.quantization)


def model_name(model: str | ModelSettings) -> str:
    """The name of a model that a profile gives alone or in a table."""
    return model if isinstance(model, str) else model.name


class Endpoint(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an OpenAI-compatible server is asked.

    ``key_variable`` names the environment variable that holds the key; the key itself is no setting and is
    never written down. Without ``base_url`` the client reads OPENAI_BASE_URL. ``timeout_s`` bounds one
    attempt. ``retries`` bounds the further attempts after 408, 409, 429, 5xx, a timeout or a lost connection
    (the client's own policy: exponential backoff from 0.5 s to 8 s, or what Retry-After asks for).
    """

    key_variable: str = "OPENAI_API_KEY"
    base_url: str | None = None
    timeout_s: Annotated[float, Range(0, 1e6, above=True)] = 120.0
    retries: Annotated[int, Range(0, 1000)] = 6
    concurrency: Annotated[int, Range(1, 1024)] = 4


class ApiSettings(Endpoint, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An endpoint whose weights stay as they are. The run's ``model`` is the provider's name for it.

    The ``base_url`` ``loopback`` is an endpoint that the run itself opens over its own model. ``retries``
    also bounds the attempts after an answer that cannot be used.
    ``limit_parameter`` is what the endpoint calls its token limit.
    ``extra`` is sent along with every request, for filters that a server would otherwise apply (D23), for
    example ``{top_k = -1, repetition_penalty = 1.0}`` to a vLLM server.
    """

    TABLE = "generation.api"

    limit_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class ServerSettings(Endpoint, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server that samples for a learner of this process, with the adapters that it is told to load.

    ``adapters`` is a directory that both see under this path; without it the run's own temporary one is used,
    for a server on this machine. ``max_difference`` is the largest mean distance per token, in nats, of the
    server's log-probabilities of a group to the learner's.
    """

    TABLE = "generation.server"

    key_variable: str = ""
    base_url: str | None = "http://127.0.0.1:8000/v1"
    timeout_s: Annotated[float, Range(0, 1e6, above=True)] = 600.0
    adapters: str | None = None
    max_difference: Annotated[float, Range(0, 100, above=True)] = 0.1


class EngineSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """vLLM's engine, by itself or inside Unsloth; the defaults are the paper's (table of parameters).

    ``gpu_memory_utilization`` is the share of the card that the engine takes for weights and cache;
    ``context`` is the longest prompt and completion together, in tokens. ``lora_rank`` is the largest
    adapter rank that the engine makes room for.
    """

    TABLE = "generation.engine"

    gpu_memory_utilization: Annotated[float, Range(0, 1, above=True)] = 0.8
    context: Tokens = 4096
    load_in_4bit: bool = True
    lora_rank: Annotated[int, Range(1, 4096)] = 32


class GenerationSettings(Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Group size G, limits in tokens, and the sampling temperature; by default nothing else filters (D23).

    ``long_prompts`` says what becomes of a prompt over ``max_prompt_tokens``: it is cut on its left, for the
    sampler and the learner alike, or the run ends (D26). Messages to an endpoint cannot be cut in tokens:
    they are sent whole, and ``refuse`` ends the run after an answer that reports more. ``top_k`` keeps the
    likeliest tokens, ``top_p`` then the fewest whose shares reach it, both after the temperature. An endpoint
    takes filters by its own names, in ``api.extra``. ``backend`` is one of ``BACKENDS``, or names somebody
    else's (``models/opening.py``). ``server`` is there for ``server`` only. ``template_kwargs`` are what the
    chat template takes besides messages, such as ``{enable_thinking = false}``; absent where it is given
    nothing.
    """

    TABLE = "generation"

    group_size: Annotated[int, Range(1, 1024)] = 4
    max_prompt_tokens: Tokens = 2048
    max_completion_tokens: Tokens = 1024
    long_prompts: LongPrompts = "cut"
    temperature: Annotated[float, Range(0, 100, above=True)] = 0.9
    top_k: Annotated[int | None, Range(1, 10_000_000)] = None
    top_p: Annotated[float, Range(0, 1, above=True)] = 1.0
    backend: str = "local"
    api: ApiSettings = ApiSettings()
    engine: EngineSettings = EngineSettings()
    server: ServerSettings | msgspec.UnsetType = msgspec.UNSET
    template_kwargs: TemplateKwargs | msgspec.UnsetType = msgspec.UNSET

    @property
    def for_template(self) -> TemplateKwargs:
        """What the chat template is given besides messages."""
        return {} if isinstance(self.template_kwargs, msgspec.UnsetType) else self.template_kwargs

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "server" and self.server is msgspec.UNSET:
            # Whole, so that records say what was asked of it.
            msgspec.structs.force_setattr(self, "server", ServerSettings())
        if self.backend == "api" and (self.top_k is not None or self.top_p < 1):
            raise ConfigError("generation.top_k and top_p are not for an endpoint: use generation.api.extra")
        room = self.max_prompt_tokens + self.max_completion_tokens
        if self.backend in ENGINES and room > self.engine.context:
            raise ConfigError(
                f"generation.engine.context is {self.engine.context}, prompt and completion may take {room} "
                "tokens: raise it, so that no completion ends early"
            )

    @property
    def served(self) -> ServerSettings:
        """The server of the backend ``server``; its defaults for any other."""
        return ServerSettings() if self.server is msgspec.UNSET else self.server


def endpoint_key(settings: Endpoint) -> str:
    """The key, ``none`` where no variable is named; raises ConfigError where the variable is not set."""
    if not settings.key_variable:
        return "none"
    key = os.environ.get(settings.key_variable, "")
    if not key:
        raise ConfigError(
            f"the environment variable {settings.key_variable} is not set: put the endpoint's key there, or "
            "name another variable in key_variable (an empty name where no key is needed), or leave the "
            "layer out, by --layer with the names of the others"
        )
    return key
