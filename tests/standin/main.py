"""Start a run; a real host would train a model here, this one asks for answers and rewards them."""

import json
import os
import urllib.request

import pynvml
from args import Args
from calm_trainer import Trainer

pynvml.nvmlInit()
count = pynvml.nvmlDeviceGetCount()
cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
free = [pynvml.nvmlDeviceGetMemoryInfo(card).free for card in cards]
os.environ["CUDA_VISIBLE_DEVICES"] = str(free.index(max(free)) if free else 0)
pynvml.nvmlShutdown()


def directory(kind, calm_args):
    """Where the files of a run go, beside this file."""
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.join(here, kind, calm_args.problem_name, calm_args.log_name)


def run(calm_args):
    """Round after round, by the trainer's count; a round that fails is left out."""
    online = calm_args.model_name.lower().startswith("online")
    model = Endpoint(calm_args) if online else trained(calm_args)
    trainer = Trainer(calm_args, model, directory("logs", calm_args), directory("algorithms", calm_args))
    while trainer.log_step < calm_args.max_steps * (calm_args.n_generations if online else 1):
        try:
            trainer.query_all() if online else trainer.train()
        except:  # noqa: E722 - as bare as the released host's
            continue
    if not online:
        model.save_pretrained(directory("checkpoints", calm_args))


def trained(calm_args):
    """A local model, with an adapter."""
    from unsloth import FastLanguageModel

    model, _ = FastLanguageModel.from_pretrained(model_name=calm_args.model_name, max_seq_length=4096)
    return FastLanguageModel.get_peft_model(model, r=32, lora_alpha=64)


class Endpoint:
    """A model behind an OpenAI-compatible endpoint."""

    def __init__(self, calm_args):
        self.calm_args = calm_args

    def __call__(self, chat):
        """The answer to a chat."""
        args = self.calm_args
        request = urllib.request.Request(
            f"{args.base_url}/chat/completions",
            json.dumps({"model": args.model_name.split("/")[1], "messages": chat}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {args.api_key}"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]


if __name__ == "__main__":
    run(Args.from_yaml("configs/tsp/local.yaml"))
